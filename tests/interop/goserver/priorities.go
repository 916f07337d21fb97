package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/utils/ptr"
)

// priorities gives new pods the number that their class stands for.
type priorities struct{ classes *store }

func (p priorities) admit(ctx context.Context, object runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
	finish := func(context.Context, bool) {}
	spec := &object.(*corev1.Pod).Spec
	// From the watch cache; what is not there, or not yet, from etcd.
	chosen, err := p.find(ctx, spec.PriorityClassName, "0")
	if err == nil && chosen == nil && spec.PriorityClassName != "" {
		chosen, err = p.find(ctx, spec.PriorityClassName, "")
	}
	if err != nil {
		return nil, err
	}
	switch {
	case chosen != nil:
		spec.PriorityClassName, spec.Priority = chosen.Name, ptr.To(chosen.Value)
		if spec.PreemptionPolicy == nil {
			spec.PreemptionPolicy = chosen.PreemptionPolicy
		}
	case spec.PriorityClassName != "":
		return nil, apierrors.NewForbidden(corev1.Resource("pods"), "",
			fmt.Errorf("no PriorityClass with name %s was found", spec.PriorityClassName))
	default:
		spec.Priority = ptr.To(int32(0))
	}
	if spec.PreemptionPolicy == nil {
		spec.PreemptionPolicy = ptr.To(corev1.PreemptLowerPriority)
	}
	return finish, nil
}

// find is the class of that name, or without name the one for pods that name none.
func (p priorities) find(ctx context.Context, name, version string) (*schedulingv1.PriorityClass, error) {
	list, err := p.classes.List(ctx, &metainternalversion.ListOptions{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	for _, class := range list.(*schedulingv1.PriorityClassList).Items {
		if class.Name == name || name == "" && class.GlobalDefault {
			return &class, nil
		}
	}
	return nil, nil
}
