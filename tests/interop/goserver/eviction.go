package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// eviction deletes a pod where the disruption budgets permit it.
type eviction struct {
	request
	pods, budgets *store
}

var (
	_ rest.NamedCreater             = &eviction{}
	_ rest.GroupVersionKindProvider = &eviction{}
)

func (e *eviction) Create(ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc,
	_ *metav1.CreateOptions,
) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	found, err := e.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := e.takeFromBudgets(ctx, found.(*corev1.Pod)); err != nil {
		return nil, err
	}
	options := object.(*policyv1.Eviction).DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	if _, _, err := e.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, options); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// takeFromBudgets writes the disruption down, so that the next eviction sees it before the controller does.
func (e *eviction) takeFromBudgets(ctx context.Context, pod *corev1.Pod) error {
	list, err := e.budgets.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return err
	}
	for _, budget := range list.(*policyv1.PodDisruptionBudgetList).Items {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		take := func(_ context.Context, object, _ runtime.Object) (runtime.Object, error) {
			b := object.(*policyv1.PodDisruptionBudget)
			if b.Status.DisruptionsAllowed <= 0 {
				return nil, apierrors.NewTooManyRequests(
					"Cannot evict pod as it would violate the pod's disruption budget.", 10)
			}
			b.Status.DisruptionsAllowed--
			if b.Status.DisruptedPods == nil {
				b.Status.DisruptedPods = map[string]metav1.Time{}
			}
			b.Status.DisruptedPods[pod.Name] = metav1.Now()
			return b, nil
		}
		status := newSubresource(e.budgets, "Spec")
		change := rest.DefaultUpdatedObjectInfo(nil, take)
		_, _, err = status.Update(ctx, budget.Name, change, nil, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("%s: %w", budget.Name, err)
		}
	}
	return nil
}
