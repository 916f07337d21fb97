package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"
)

// addDefaults fills what clients may leave out, as far as schedulers and controllers look at it.
func addDefaults(scheme *runtime.Scheme) {
	scheme.AddTypeDefaultingFunc(&corev1.Pod{}, func(o any) { defaultPodSpec(&o.(*corev1.Pod).Spec) })
	scheme.AddTypeDefaultingFunc(&corev1.PodList{}, func(o any) {
		for i := range o.(*corev1.PodList).Items {
			defaultPodSpec(&o.(*corev1.PodList).Items[i].Spec)
		}
	})
	addWorkloadDefaults(scheme)
}

func orDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

func defaultPodSpec(spec *corev1.PodSpec) {
	orDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	orDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	orDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = ptr.To(int64(corev1.DefaultTerminationGracePeriodSeconds))
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = ptr.To(corev1.DefaultEnableServiceLinks)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			defaultContainer(&containers[i])
		}
	}
}

func defaultContainer(c *corev1.Container) {
	orDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	orDefault(&c.ImagePullPolicy, corev1.PullIfNotPresent)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	// Who names a limit alone asks for as much.
	for name, limit := range c.Resources.Limits {
		if _, asked := c.Resources.Requests[name]; !asked {
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[name] = limit.DeepCopy()
		}
	}
}

func preparePod(object runtime.Object) {
	pod := object.(*corev1.Pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosClass(&pod.Spec)}
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
	// What the admission of tolerations adds.
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
		tolerated := false
		for _, t := range pod.Spec.Tolerations {
			anyValue := t.Operator == corev1.TolerationOpExists && (t.Key == "" || t.Key == taint.Key)
			tolerated = tolerated || anyValue && (t.Effect == "" || t.Effect == taint.Effect)
		}
		if !tolerated {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: taint.Effect, TolerationSeconds: ptr.To(int64(300)),
			})
		}
	}
}

// qosClass: Guaranteed pods ask for what their limits are, BestEffort pods ask for nothing.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, bestEffort := true, true
	for _, c := range append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, asked := c.Resources.Requests[name]
			some := func(q resource.Quantity) bool { return !q.IsZero() }
			if limited && some(limit) || asked && some(request) {
				bestEffort = false
			}
			if !limited || limit.IsZero() || asked && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case bestEffort:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func podFields(object runtime.Object) fields.Set {
	pod := object.(*corev1.Pod)
	return fields.Set{
		"spec.nodeName": pod.Spec.NodeName, "spec.schedulerName": pod.Spec.SchedulerName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy), "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"status.phase": string(pod.Status.Phase), "status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

// podDeletion leaves pods of nodes to their kubelets for a while.
type podDeletion struct{ strategy }

var _ rest.RESTGracefulDeleteStrategy = podDeletion{}

func (podDeletion) CheckGracefulDelete(_ context.Context, object runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	pod := object.(*corev1.Pod)
	period := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if options.GracePeriodSeconds != nil {
		period = *options.GracePeriodSeconds
	}
	// No kubelet has to be asked about these.
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		period = 0
	}
	if period < 0 {
		period = 1
	}
	options.GracePeriodSeconds = &period
	return true
}
