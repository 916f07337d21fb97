package main

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// binding gives a pod to a node.
type binding struct {
	request
	pods *store
}

var (
	_ rest.NamedCreater                   = &binding{}
	_ rest.SubresourceObjectMetaPreserver = &binding{}
)

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate lets the UID through: it says which pod was meant.
func (b *binding) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

func (b *binding) Create(ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions,
) (runtime.Object, error) {
	bind, ok := object.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding: %T", object))
	}
	if bind.Target.Name == "" || bind.Target.Kind != "" && bind.Target.Kind != "Node" {
		return nil, apierrors.NewBadRequest("the target of a binding is a node")
	}
	if validate != nil {
		if err := validate(ctx, bind.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	preconditions := &storage.Preconditions{}
	if bind.UID != "" {
		preconditions.UID = &bind.UID
	}
	if bind.ResourceVersion != "" {
		preconditions.ResourceVersion = &bind.ResourceVersion
	}
	resource := schema.GroupResource{Resource: "pods/binding"}
	err := updatePod(ctx, b.pods, name, preconditions, dryrun.IsDryRun(options.DryRun), func(pod *corev1.Pod) error {
		switch {
		case pod.DeletionTimestamp != nil:
			return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
		case pod.Spec.NodeName != "":
			return fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
		case len(pod.Spec.SchedulingGates) > 0:
			return fmt.Errorf("pod %s has non-empty .spec.schedulingGates", pod.Name)
		}
		pod.Spec.NodeName = bind.Target.Name
		pod.Status.NominatedNodeName = ""
		if len(bind.Annotations) > 0 && pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, bind.Annotations)
		setScheduled(pod)
		return nil
	})
	if err != nil {
		if _, known := err.(apierrors.APIStatus); !known && !storage.IsNotFound(err) {
			err = apierrors.NewConflict(resource, name, err)
		}
		if storage.IsNotFound(err) {
			err = apierrors.NewNotFound(resource, name)
		}
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func setScheduled(pod *corev1.Pod) {
	now := metav1.Now()
	scheduled := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now,
		ObservedGeneration: pod.Generation,
	}
	for i, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			pod.Status.Conditions[i] = scheduled
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, scheduled)
}

// updatePod changes a pod where it is stored, once again when somebody else was first.
func updatePod(ctx context.Context, pods *store, name string, preconditions *storage.Preconditions, dry bool,
	change func(*corev1.Pod) error,
) error {
	key, err := pods.KeyFunc(ctx, name)
	if err != nil {
		return err
	}
	return pods.Store.Storage.GuaranteedUpdate(ctx, key, &corev1.Pod{}, false, preconditions,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			pod := object.(*corev1.Pod)
			return pod, change(pod)
		}), dry, nil)
}
