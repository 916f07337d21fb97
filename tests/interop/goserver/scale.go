package main

import (
	"context"
	"fmt"
	"reflect"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// scale is how many replicas a Deployment, ReplicaSet, … wants and has.
type scale struct {
	request
	of *store
}

var (
	_ rest.Patcher                  = &scale{}
	_ rest.GroupVersionKindProvider = &scale{}
)

func (s *scale) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	object, err := s.of.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return scaleOf(object)
}

func (s *scale) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return rest.NewDefaultTableConvertor(s.of.kind.groupResource()).ConvertToTable(ctx, object, options)
}

func (s *scale) Update(ctx context.Context, name string, change rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	_ rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	replicas := func(ctx context.Context, object, _ runtime.Object) (runtime.Object, error) {
		before, err := scaleOf(object)
		if err != nil {
			return nil, err
		}
		after, err := change.UpdatedObject(ctx, before)
		if err != nil {
			return nil, err
		}
		spec, _ := part(object, "Spec")
		wanted := after.(*autoscalingv1.Scale).Spec.Replicas
		spec.FieldByName("Replicas").Set(reflect.ValueOf(&wanted))
		return object, nil
	}
	object, created, err := s.of.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, replicas), nil,
		rest.ValidateAllObjectUpdateFunc, false, options)
	if err != nil {
		return nil, false, err
	}
	out, err := scaleOf(object)
	return out, created, err
}

func scaleOf(object runtime.Object) (*autoscalingv1.Scale, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	spec, _ := part(object, "Spec")
	status, _ := part(object, "Status")
	out := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Name: accessor.GetName(), Namespace: accessor.GetNamespace(), UID: accessor.GetUID(),
		ResourceVersion: accessor.GetResourceVersion(), CreationTimestamp: accessor.GetCreationTimestamp(),
	}}
	wanted, ok := spec.FieldByName("Replicas").Interface().(*int32)
	if !ok {
		return nil, fmt.Errorf("%T has no replicas", object)
	}
	if wanted != nil {
		out.Spec.Replicas = *wanted
	}
	out.Status.Replicas = int32(status.FieldByName("Replicas").Int())
	switch selector := spec.FieldByName("Selector").Interface().(type) {
	case *metav1.LabelSelector:
		matches, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return nil, err
		}
		out.Status.Selector = matches.String()
	case map[string]string:
		out.Status.Selector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selector})
	}
	return out, nil
}
