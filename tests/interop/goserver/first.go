package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes"
)

// firstObjects creates what every cluster has: namespaces, priority classes, and the levels of fair queueing.
func firstObjects(ctx context.Context, client kubernetes.Interface) error {
	var failed error
	try := func(_ any, err error) {
		if failed == nil && err != nil && !apierrors.IsAlreadyExists(err) {
			failed = err
		}
	}
	create := metav1.CreateOptions{}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		try(client.CoreV1().Namespaces().Create(ctx, namespace, create))
	}
	for name, value := range map[string]int32{"system-node-critical": 2000001000, "system-cluster-critical": 2000000000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		try(client.SchedulingV1().PriorityClasses().Create(ctx, class, create))
	}
	levels := append(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations...)
	for _, level := range levels {
		try(client.FlowcontrolV1().PriorityLevelConfigurations().Create(ctx, level, create))
	}
	for _, schema := range append(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas...) {
		try(client.FlowcontrolV1().FlowSchemas().Create(ctx, schema, create))
	}
	return failed
}
