package interop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

func TestTypedClient(t *testing.T) {
	ns := namespace(t, shared)
	ctx := within(t)
	maps := shared.client.CoreV1().ConfigMaps(ns)
	made, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 255}},
	}, metav1.CreateOptions{})
	must(t, err)
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() {
		t.Fatalf("metadata is not filled in: %+v", made.ObjectMeta)
	}
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Fatalf("second create: %v", err)
	}
	stale := made.DeepCopy()
	made.Data["k"] = "w"
	updated, err := maps.Update(ctx, made, metav1.UpdateOptions{})
	must(t, err)
	if updated.Data["k"] != "w" || string(updated.BinaryData["b"]) != "\x00\xff" {
		t.Fatalf("update: %+v", updated)
	}
	if _, err = maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("update of an old version: %v", err)
	}
	// The usual way out of a conflict.
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := maps.Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Labels = map[string]string{"retried": "true"}
		_, err = maps.Update(ctx, current, metav1.UpdateOptions{})
		return err
	}))
	patched, err := maps.Patch(ctx, "one", types.MergePatchType, []byte(`{"data":{"k":null,"n":"1"}}`), metav1.PatchOptions{})
	must(t, err)
	if fmt.Sprint(patched.Data) != "map[n:1]" {
		t.Fatalf("merge patch: %v", patched.Data)
	}
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "retried=true"})
	must(t, err)
	if len(list.Items) != 1 || list.ResourceVersion == "" {
		t.Fatalf("list: %+v", list)
	}
	uid := types.UID("11111111-1111-1111-1111-111111111111")
	err = maps.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if !apierrors.IsConflict(err) {
		t.Fatalf("delete of another object of that name: %v", err)
	}
	must(t, maps.Delete(ctx, "one", metav1.DeleteOptions{}))
	if _, err = maps.Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("get after delete: %v", err)
	}
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Not a name"}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Fatalf("create with a bad name: %v", err)
	}
}

func TestStrategicMergeAndScale(t *testing.T) {
	ns := namespace(t, shared)
	ctx := within(t)
	zero := int32(0)
	labels := map[string]string{"app": "d"}
	deployments := shared.client.AppsV1().Deployments(ns)
	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &zero, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "a", Image: "a"}, {Name: "b", Image: "b"}},
			}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"c"},{"$patch":"delete","name":"a"}]}}}}`
	patched, err := deployments.Patch(ctx, "d", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	containers := patched.Spec.Template.Spec.Containers
	if len(containers) != 1 || containers[0].Name != "b" || containers[0].Image != "c" {
		t.Fatalf("containers: %+v", containers)
	}
	// The deployment controller writes as well.
	var scale *autoscalingv1.Scale
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := deployments.GetScale(ctx, "d", metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.Replicas = 2
		scale, err = deployments.UpdateScale(ctx, "d", current, metav1.UpdateOptions{})
		return err
	}))
	if scale.Spec.Replicas != 2 || scale.Status.Selector != "app=d" {
		t.Fatalf("scale: %+v", scale)
	}
}

func TestServerSideApply(t *testing.T) {
	ns := namespace(t, shared)
	ctx := within(t)
	maps := shared.client.CoreV1().ConfigMaps(ns)
	one := metav1.ApplyOptions{FieldManager: "one"}
	two := metav1.ApplyOptions{FieldManager: "two"}
	_, err := maps.Apply(ctx, applycorev1.ConfigMap("m", ns).WithData(map[string]string{"a": "1", "b": "1"}), one)
	must(t, err)
	_, err = maps.Apply(ctx, applycorev1.ConfigMap("m", ns).WithData(map[string]string{"a": "2"}), two)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one": .data.a`) {
		t.Fatalf("apply of another's field: %v", err)
	}
	status, _ := err.(apierrors.APIStatus)
	causes := status.Status().Details.Causes
	if len(causes) != 1 || causes[0].Type != metav1.CauseTypeFieldManagerConflict || causes[0].Field != ".data.a" {
		t.Fatalf("causes: %+v", causes)
	}
	two.Force = true
	_, err = maps.Apply(ctx, applycorev1.ConfigMap("m", ns).WithData(map[string]string{"a": "2"}), two)
	must(t, err)
	// What the first manager does not name any more goes, what the second one took stays.
	after, err := maps.Apply(ctx, applycorev1.ConfigMap("m", ns), one)
	must(t, err)
	if fmt.Sprint(after.Data) != "map[a:2]" {
		t.Fatalf("data: %v", after.Data)
	}
	extracted, err := applycorev1.ExtractConfigMap(after, "two")
	must(t, err)
	if fmt.Sprint(extracted.Data) != "map[a:2]" {
		t.Fatalf("extracted: %v", extracted.Data)
	}
}

func TestPages(t *testing.T) {
	ns := namespace(t, shared)
	ctx := within(t)
	maps := shared.client.CoreV1().ConfigMaps(ns)
	for i := range 25 {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%02d", i)}}, metav1.CreateOptions{})
		must(t, err)
	}
	first, err := maps.List(ctx, metav1.ListOptions{Limit: 10, LabelSelector: "!no-such-label"})
	must(t, err)
	if len(first.Items) != 10 || first.Continue == "" {
		t.Fatalf("first page: %d items, continue %q", len(first.Items), first.Continue)
	}
	all, err := maps.List(ctx, metav1.ListOptions{Limit: 10})
	must(t, err)
	if all.RemainingItemCount == nil || *all.RemainingItemCount < 15 {
		t.Fatalf("remaining: %v", all.RemainingItemCount)
	}
	// A write between two pages is not seen by the second one.
	must(t, maps.Delete(ctx, "m24", metav1.DeleteOptions{}))
	second, err := maps.List(ctx, metav1.ListOptions{Limit: 100, Continue: all.Continue})
	must(t, err)
	names := make([]string, 0)
	for _, item := range append(all.Items, second.Items...) {
		if strings.HasPrefix(item.Name, "m") {
			names = append(names, item.Name)
		}
	}
	if len(names) != 25 || second.ResourceVersion != all.ResourceVersion || !sort.StringsAreSorted(names) {
		t.Fatalf("pages: %v, at %s and %s", names, all.ResourceVersion, second.ResourceVersion)
	}
	count := 0
	err = pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		options.Limit = 7
		return maps.List(ctx, options)
	})).EachListItem(ctx, metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}, func(runtime.Object) error {
		count++
		return nil
	})
	must(t, err)
	if count != 24 {
		t.Fatalf("the pager saw %d", count)
	}
}

// What clients send in protobuf is read; they take the answers in JSON.
func TestProtobuf(t *testing.T) {
	config := rest.CopyConfig(shared.config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	var sent []string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if kind := request.Header.Get("Content-Type"); kind != "" {
				sent = append(sent, kind)
			}
			return next.RoundTrip(request)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	ns := namespace(t, shared)
	ctx := within(t)
	pod := sleeper("p")
	pod.Spec.NodeName = "nowhere"
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "ü"}}
	made, err := client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	if made.Spec.Containers[0].Env[0].Value != "ü" || made.Spec.Containers[0].Command[0] != "sh" {
		t.Fatalf("round trip: %+v", made.Spec.Containers[0])
	}
	_, err = client.CoreV1().Pods(ns).Get(ctx, "no-such-pod", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("an error in protobuf: %v", err)
	}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com", Selectors: []resourcev1.DeviceSelector{{
				CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "x"`},
			}}},
		}}}},
	}
	got, err := client.ResourceV1().ResourceClaims(ns).Create(ctx, claim, metav1.CreateOptions{})
	must(t, err)
	if exactly := got.Spec.Devices.Requests[0].Exactly; exactly.Count != 1 || exactly.AllocationMode != resourcev1.DeviceAllocationModeExactCount {
		t.Fatalf("defaults: %+v", exactly)
	}
	list, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(list.Items) != 1 {
		t.Fatalf("list: %d items", len(list.Items))
	}
	watcher, err := client.CoreV1().Pods(ns).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(t, err)
	defer watcher.Stop()
	zero := int64(0)
	must(t, client.CoreV1().Pods(ns).Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	event := <-watcher.ResultChan()
	if deleted, ok := event.Object.(*corev1.Pod); !ok || deleted.Name != "p" {
		t.Fatalf("event: %+v", event)
	}
	if len(sent) != 3 {
		t.Fatalf("sent: %v", sent)
	}
	for _, kind := range sent {
		if kind != "application/vnd.kubernetes.protobuf" {
			t.Fatalf("sent: %v", sent)
		}
	}
}

func TestDynamicClient(t *testing.T) {
	client, err := dynamic.NewForConfig(shared.config)
	must(t, err)
	ns := namespace(t, shared)
	ctx := within(t)
	claims := client.Resource(schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}).Namespace(ns)
	object := &unstructured.Unstructured{}
	must(t, json.Unmarshal([]byte(`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c"},
		"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu.example.com"}}]}}}`), object))
	_, err = claims.Create(ctx, object, metav1.CreateOptions{})
	must(t, err)
	applied, err := claims.Apply(ctx, "c", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
		"metadata": map[string]any{"name": "c", "labels": map[string]any{"l": "1"}},
	}}, metav1.ApplyOptions{FieldManager: "dynamic"})
	must(t, err)
	mode, _, _ := unstructured.NestedSlice(applied.Object, "spec", "devices", "requests")
	if len(mode) != 1 || applied.GetLabels()["l"] != "1" {
		t.Fatalf("applied: %v", applied.Object)
	}
	list, err := claims.List(ctx, metav1.ListOptions{LabelSelector: "l in (1,2)"})
	must(t, err)
	if len(list.Items) != 1 || list.GetKind() != "ResourceClaimList" {
		t.Fatalf("list: %v", list)
	}
	must(t, claims.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))

	// Metadata alone, as garbage collectors read it.
	partial, err := metadata.NewForConfig(shared.config)
	must(t, err)
	nodes, err := partial.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(nodes.Items) != 1 || nodes.Items[0].Name != "node-0" {
		t.Fatalf("nodes: %+v", nodes.Items)
	}
}

func TestDiscovery(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(shared.config)
	must(t, err)
	version, err := client.ServerVersion()
	must(t, err)
	if version.Major != "1" {
		t.Fatalf("version: %+v", version)
	}
	_, lists, err := client.ServerGroupsAndResources()
	must(t, err)
	seen := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			seen[list.GroupVersion+" "+resource.Name] = true
		}
	}
	legacy := discovery.NewDiscoveryClient(client.RESTClient())
	legacy.UseLegacyDiscovery = true
	_, lists, err = legacy.ServerGroupsAndResources()
	must(t, err)
	count := 0
	for _, list := range lists {
		for _, resource := range list.APIResources {
			count++
			if !seen[list.GroupVersion+" "+resource.Name] {
				t.Errorf("only in the legacy documents: %s %s", list.GroupVersion, resource.Name)
			}
		}
	}
	if count != len(seen) {
		t.Errorf("%d resources in the legacy documents, %d in the aggregated ones", count, len(seen))
	}
	for _, wanted := range []string{"v1 pods/exec", "apps/v1 deployments/scale", "resource.k8s.io/v1 resourceclaims/status"} {
		if !seen[wanted] {
			t.Errorf("not there: %s", wanted)
		}
	}
	mapper := restmapper.NewShortcutExpander(
		restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), memory.NewMemCacheClient(client), nil)
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceSlice"})
	must(t, err)
	if mapping.Resource.Resource != "resourceslices" || mapping.Scope.Name() != "root" {
		t.Fatalf("mapping: %+v", mapping)
	}
	expanded, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: "deploy"})
	must(t, err)
	if expanded.Group != "apps" || expanded.Resource != "deployments" {
		t.Fatalf("deploy is %v", expanded)
	}
	document, err := client.OpenAPISchema()
	must(t, err)
	if len(document.GetDefinitions().GetAdditionalProperties()) < 100 {
		t.Fatalf("the OpenAPI v2 document is too small")
	}
	paths, err := client.OpenAPIV3().Paths()
	must(t, err)
	if paths["apis/resource.k8s.io/v1"] == nil {
		t.Fatalf("no OpenAPI v3 document for resource.k8s.io/v1")
	}
}

func TestWarningsAndFieldValidation(t *testing.T) {
	var warnings collector
	config := rest.CopyConfig(shared.config)
	config.WarningHandler = &warnings
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace(t, shared))
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "dat": "x",
		}}
	}
	_, err = maps.Create(within(t), object("strict"), metav1.CreateOptions{FieldValidation: "Strict"})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "dat"`) {
		t.Fatalf("strict: %v", err)
	}
	_, err = maps.Create(within(t), object("warn"), metav1.CreateOptions{FieldValidation: "Warn"})
	must(t, err)
	if fmt.Sprint(warnings) != `[unknown field "dat"]` {
		t.Fatalf("warnings: %v", warnings)
	}
}

// collector keeps warnings.
type collector []string

func (c *collector) HandleWarningHeader(_ int, _ string, text string) { *c = append(*c, text) }

// roundTripper is a function as http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
