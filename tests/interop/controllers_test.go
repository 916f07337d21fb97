package interop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Greeting is a custom resource: its controller writes the greeting into a ConfigMap.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GreetingSpec   `json:"spec"`
	Status            GreetingStatus `json:"status,omitempty"`
}

type GreetingSpec struct {
	Name string `json:"name"`
	Word string `json:"word,omitempty"`
}

type GreetingStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Replicas   int32              `json:"replicas,omitempty"`
}

type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Greeting `json:"items"`
}

func (g *Greeting) DeepCopyObject() runtime.Object {
	out := *g
	out.ObjectMeta = *g.ObjectMeta.DeepCopy()
	out.Status.Conditions = append([]metav1.Condition(nil), g.Status.Conditions...)
	return &out
}

func (l *GreetingList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Greeting))
	}
	return &out
}

var greetings = schema.GroupVersion{Group: "interop.example.com", Version: "v1"}

func greetingScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	_ = clientgoscheme.AddToScheme(scheme)
	scheme.AddKnownTypes(greetings, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, greetings)
	return scheme
}

func greetingDefinition() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	word := apiextensionsv1.JSONSchemaProps{Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"hello"`)}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "greetings.interop.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: greetings.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "greetings", Singular: "greeting", Kind: "Greeting", ListKind: "GreetingList", ShortNames: []string{"gr"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Required: []string{"spec"},
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {
							Type: "object", Required: []string{"name"},
							Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": text, "word": word},
							XValidations: apiextensionsv1.ValidationRules{{
								Rule: "self.name != 'nobody'", Message: "nobody can not be greeted",
							}},
						},
						"status": {Type: "object", XPreserveUnknownFields: ptr.To(true)},
					},
				}},
			}},
		},
	}
}

const finalizer = "interop.example.com/goodbye"

// greeter is a reconciler as kubebuilder's users write them.
type greeter struct {
	client.Client
	goodbyes chan string
}

func (r *greeter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var greeting Greeting
	if err := r.Get(ctx, request.NamespacedName, &greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !greeting.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&greeting, finalizer) {
			// A conflict, because the cache was behind, brings it here again.
			if err := r.Update(ctx, &greeting); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			r.goodbyes <- greeting.Spec.Name
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&greeting, finalizer) {
		if err := r.Update(ctx, &greeting); err != nil {
			return ctrl.Result{}, err
		}
	}
	text := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: greeting.Namespace, Name: greeting.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, text, func() error {
		text.Data = map[string]string{"text": fmt.Sprintf("%s, %s", greeting.Spec.Word, greeting.Spec.Name)}
		return controllerutil.SetControllerReference(&greeting, text, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	before := greeting.DeepCopyObject().(*Greeting)
	meta.SetStatusCondition(&greeting.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Greeted", ObservedGeneration: greeting.Generation,
	})
	return ctrl.Result{}, r.Status().Patch(ctx, &greeting, client.MergeFrom(before))
}

// A manager with a reconciler for a custom resource, set up in the way of envtest against an existing cluster.
func TestControllerRuntime(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	environment := &envtest.Environment{
		UseExistingCluster: ptr.To(true), Config: shared.config,
		CRDInstallOptions: envtest.CRDInstallOptions{
			CRDs: []*apiextensionsv1.CustomResourceDefinition{greetingDefinition()}, CleanUpAfterUse: true,
		},
	}
	config, err := environment.Start()
	must(t, err)
	t.Cleanup(func() { _ = environment.Stop() })
	ns := namespace(t, shared)
	ctx, cancel := context.WithCancel(within(t))
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: greetingScheme(), Metrics: server.Options{BindAddress: "0"}, LeaderElection: true,
		LeaderElectionID: "greeter", LeaderElectionNamespace: ns, LeaderElectionReleaseOnCancel: true,
		// A machine that stands still for a while does not cost the leadership.
		LeaseDuration: ptr.To(patience), RenewDeadline: ptr.To(patience / 2),
	})
	must(t, err)
	goodbyes := make(chan string, 1)
	must(t, ctrl.NewControllerManagedBy(manager).For(&Greeting{}).Owns(&corev1.ConfigMap{}).
		Complete(&greeter{Client: manager.GetClient(), goodbyes: goodbyes}))
	over := make(chan error, 1)
	go func() { over <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-over)
	})

	// Like an envtest suite: a client of its own that does not read the manager's cache.
	direct, err := client.NewWithWatch(config, client.Options{Scheme: greetingScheme()})
	must(t, err)
	nobody := &Greeting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nobody"}, Spec: GreetingSpec{Name: "nobody"}}
	if err := direct.Create(ctx, nobody); !apierrors.IsInvalid(err) {
		t.Fatalf("a greeting that breaks the rule: %v", err)
	}
	world := &Greeting{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "g"}, Spec: GreetingSpec{Name: "world"}}
	must(t, direct.Create(ctx, world))
	text := func(wanted string) func(*corev1.ConfigMap) bool {
		return func(m *corev1.ConfigMap) bool { return m.Data["text"] == wanted }
	}
	awaitText := func(what string, condition func(*corev1.ConfigMap) bool) *corev1.ConfigMap {
		t.Helper()
		return await(t, shared.client.CoreV1().RESTClient(), "configmaps", ns, "g", what, condition)
	}
	made := awaitText("the greeting", text("hello, world"))
	// What the controller owns comes back.
	must(t, direct.Delete(ctx, made))
	awaitText("its return", func(m *corev1.ConfigMap) bool { return m.UID != made.UID && m.Data["text"] != "" })
	must(t, direct.Patch(ctx, world, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"word":"good day"}}`))))
	awaitText("the change", text("good day, world"))
	// The generation counts changes of the spec, not those of the status.
	must(t, wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var now Greeting
		err := direct.Get(ctx, client.ObjectKeyFromObject(world), &now)
		condition := meta.FindStatusCondition(now.Status.Conditions, "Ready")
		return condition != nil && condition.ObservedGeneration == 2 && now.Generation == 2, err
	}))
	must(t, direct.Delete(ctx, world))
	select {
	case name := <-goodbyes:
		if name != "world" {
			t.Fatal(name)
		}
	case <-ctx.Done():
		t.Fatal("the finalizer did not run")
	}
	// The garbage collector removes what the greeting owned.
	awaitEnd[*corev1.ConfigMap](t, shared.client.CoreV1().RESTClient(), "configmaps", ns, "g")
}
