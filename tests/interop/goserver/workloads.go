package main

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func orPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// addWorkloadDefaults: what the controllers of pods read.
func addWorkloadDefaults(scheme *runtime.Scheme) {
	scheme.AddTypeDefaultingFunc(&appsv1.Deployment{}, func(o any) {
		spec := &o.(*appsv1.Deployment).Spec
		orPointer(&spec.Replicas, 1)
		orPointer(&spec.RevisionHistoryLimit, 10)
		orPointer(&spec.ProgressDeadlineSeconds, 600)
		orDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			orPointer(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			orPointer(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
			orPointer(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		}
		defaultPodSpec(&spec.Template.Spec)
	})
	scheme.AddTypeDefaultingFunc(&appsv1.ReplicaSet{}, func(o any) {
		spec := &o.(*appsv1.ReplicaSet).Spec
		orPointer(&spec.Replicas, 1)
		defaultPodSpec(&spec.Template.Spec)
	})
	scheme.AddTypeDefaultingFunc(&corev1.ReplicationController{}, func(o any) {
		spec := &o.(*corev1.ReplicationController).Spec
		orPointer(&spec.Replicas, 1)
		if spec.Template != nil {
			defaultPodSpec(&spec.Template.Spec)
		}
	})
	scheme.AddTypeDefaultingFunc(&appsv1.StatefulSet{}, func(o any) {
		spec := &o.(*appsv1.StatefulSet).Spec
		orPointer(&spec.Replicas, 1)
		orPointer(&spec.RevisionHistoryLimit, 10)
		orDefault(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
		orDefault(&spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
		if spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
			orPointer(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
			orPointer(&spec.UpdateStrategy.RollingUpdate.Partition, 0)
		}
		orPointer(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		})
		defaultPodSpec(&spec.Template.Spec)
	})
	scheme.AddTypeDefaultingFunc(&appsv1.DaemonSet{}, func(o any) {
		spec := &o.(*appsv1.DaemonSet).Spec
		orPointer(&spec.RevisionHistoryLimit, 10)
		orDefault(&spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
		if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
			orPointer(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
			orPointer(&spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
			orPointer(&spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
		}
		defaultPodSpec(&spec.Template.Spec)
	})
	scheme.AddTypeDefaultingFunc(&batchv1.Job{}, func(o any) { defaultJobSpec(&o.(*batchv1.Job).Spec) })
	scheme.AddTypeDefaultingFunc(&batchv1.CronJob{}, func(o any) {
		spec := &o.(*batchv1.CronJob).Spec
		orDefault(&spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
		orPointer(&spec.Suspend, false)
		orPointer(&spec.SuccessfulJobsHistoryLimit, 3)
		orPointer(&spec.FailedJobsHistoryLimit, 1)
		defaultJobSpec(&spec.JobTemplate.Spec)
	})
	scheme.AddTypeDefaultingFunc(&resourcev1.ResourceClaim{}, func(o any) {
		defaultRequests(o.(*resourcev1.ResourceClaim).Spec.Devices.Requests)
	})
	scheme.AddTypeDefaultingFunc(&resourcev1.ResourceClaimTemplate{}, func(o any) {
		defaultRequests(o.(*resourcev1.ResourceClaimTemplate).Spec.Spec.Devices.Requests)
	})
	scheme.AddTypeDefaultingFunc(&resourcev1.ResourceSlice{}, func(o any) {
		for i := range o.(*resourcev1.ResourceSlice).Spec.Devices {
			defaultTaints(o.(*resourcev1.ResourceSlice).Spec.Devices[i].Taints)
		}
	})
}

func defaultJobSpec(spec *batchv1.JobSpec) {
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = ptr.To(int32(1))
	}
	orPointer(&spec.Parallelism, 1)
	orPointer(&spec.BackoffLimit, 6)
	orPointer(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	orPointer(&spec.Suspend, false)
	orPointer(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	if spec.PodFailurePolicy != nil {
		*spec.PodReplacementPolicy = batchv1.Failed
		for i := range spec.PodFailurePolicy.Rules {
			for j := range spec.PodFailurePolicy.Rules[i].OnPodConditions {
				orDefault(&spec.PodFailurePolicy.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	defaultPodSpec(&spec.Template.Spec)
}

// prepareJob makes the selector that nobody has to write.
func prepareJob(object runtime.Object) {
	job := object.(*batchv1.Job)
	if ptr.Deref(job.Spec.ManualSelector, false) {
		return
	}
	owned := map[string]string{batchv1.ControllerUidLabel: string(job.UID)}
	labels := maps.Clone(owned)
	labels[batchv1.JobNameLabel] = job.Name
	labels["controller-uid"], labels["job-name"] = string(job.UID), job.Name
	maps.Copy(labels, job.Spec.Template.Labels)
	job.Spec.Template.Labels = labels
	job.Spec.Selector = &metav1.LabelSelector{MatchLabels: owned}
}

func defaultRequests(requests []resourcev1.DeviceRequest) {
	for i := range requests {
		if exactly := requests[i].Exactly; exactly != nil {
			defaultCount(&exactly.AllocationMode, &exactly.Count)
			defaultTolerations(exactly.Tolerations)
		}
		for j := range requests[i].FirstAvailable {
			sub := &requests[i].FirstAvailable[j]
			defaultCount(&sub.AllocationMode, &sub.Count)
			defaultTolerations(sub.Tolerations)
		}
	}
}

func defaultCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	orDefault(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		orDefault(count, 1)
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		orDefault(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

func defaultTaints(taints []resourcev1.DeviceTaint) {
	for i := range taints {
		if taints[i].TimeAdded == nil {
			now := metav1.Now()
			taints[i].TimeAdded = &now
		}
	}
}
