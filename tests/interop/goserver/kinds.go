package main

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// Events are forgotten after an hour, as by kube-apiserver.
const eventSeconds = 3600

// kinds are all that is served. A kind that the release has in several versions is served in one of them.
func kinds() []*kind {
	all := []*kind{
		{resource: "pods", shortNames: []string{"po"}, object: &corev1.Pod{}, list: &corev1.PodList{}, counted: true,
			prepare: preparePod, fields: podFields, indexed: []string{"spec.nodeName"}},
		{resource: "nodes", shortNames: []string{"no"}, cluster: true, object: &corev1.Node{}, list: &corev1.NodeList{},
			bornWithStatus: true,
			fields: func(o runtime.Object) fields.Set {
				unschedulable := "false"
				if o.(*corev1.Node).Spec.Unschedulable {
					unschedulable = "true"
				}
				return fields.Set{"spec.unschedulable": unschedulable}
			}},
		{resource: "namespaces", shortNames: []string{"ns"}, cluster: true, object: &corev1.Namespace{},
			list: &corev1.NamespaceList{}, prepare: prepareNamespace,
			fields: func(o runtime.Object) fields.Set {
				return fields.Set{"status.phase": string(o.(*corev1.Namespace).Status.Phase)}
			}},
		{resource: "events", shortNames: []string{"ev"}, object: &corev1.Event{}, list: &corev1.EventList{},
			fields: eventFields, ttl: eventSeconds},
		{resource: "configmaps", shortNames: []string{"cm"}, object: &corev1.ConfigMap{}, list: &corev1.ConfigMapList{}},
		{resource: "secrets", object: &corev1.Secret{}, list: &corev1.SecretList{}},
		{resource: "services", shortNames: []string{"svc"}, object: &corev1.Service{}, list: &corev1.ServiceList{}},
		{resource: "serviceaccounts", shortNames: []string{"sa"}, object: &corev1.ServiceAccount{},
			list: &corev1.ServiceAccountList{}},
		{resource: "endpoints", singular: "endpoints", shortNames: []string{"ep"}, object: &corev1.Endpoints{},
			list: &corev1.EndpointsList{}},
		{resource: "persistentvolumes", shortNames: []string{"pv"}, cluster: true, object: &corev1.PersistentVolume{},
			list: &corev1.PersistentVolumeList{}},
		{resource: "persistentvolumeclaims", shortNames: []string{"pvc"}, object: &corev1.PersistentVolumeClaim{},
			list: &corev1.PersistentVolumeClaimList{}},
		{resource: "replicationcontrollers", shortNames: []string{"rc"}, counted: true, withScale: true,
			object: &corev1.ReplicationController{}, list: &corev1.ReplicationControllerList{}},
		{resource: "resourcequotas", shortNames: []string{"quota"}, object: &corev1.ResourceQuota{},
			list: &corev1.ResourceQuotaList{}},
		{resource: "limitranges", shortNames: []string{"limits"}, object: &corev1.LimitRange{}, list: &corev1.LimitRangeList{}},
		{resource: "podtemplates", object: &corev1.PodTemplate{}, list: &corev1.PodTemplateList{}, counted: true},

		{gv: appsv1.SchemeGroupVersion, resource: "deployments", shortNames: []string{"deploy"}, counted: true,
			withScale: true, object: &appsv1.Deployment{}, list: &appsv1.DeploymentList{}},
		{gv: appsv1.SchemeGroupVersion, resource: "replicasets", shortNames: []string{"rs"}, counted: true,
			withScale: true, object: &appsv1.ReplicaSet{}, list: &appsv1.ReplicaSetList{}},
		{gv: appsv1.SchemeGroupVersion, resource: "statefulsets", shortNames: []string{"sts"}, counted: true,
			withScale: true, object: &appsv1.StatefulSet{}, list: &appsv1.StatefulSetList{}},
		{gv: appsv1.SchemeGroupVersion, resource: "daemonsets", shortNames: []string{"ds"}, counted: true,
			object: &appsv1.DaemonSet{}, list: &appsv1.DaemonSetList{}},
		{gv: appsv1.SchemeGroupVersion, resource: "controllerrevisions", object: &appsv1.ControllerRevision{},
			list: &appsv1.ControllerRevisionList{}},

		{gv: batchv1.SchemeGroupVersion, resource: "jobs", counted: true, object: &batchv1.Job{}, list: &batchv1.JobList{},
			prepare: prepareJob},
		{gv: batchv1.SchemeGroupVersion, resource: "cronjobs", shortNames: []string{"cj"}, counted: true,
			object: &batchv1.CronJob{}, list: &batchv1.CronJobList{}},

		{gv: policyv1.SchemeGroupVersion, resource: "poddisruptionbudgets", shortNames: []string{"pdb"}, counted: true,
			object: &policyv1.PodDisruptionBudget{}, list: &policyv1.PodDisruptionBudgetList{}},
		{gv: coordinationv1.SchemeGroupVersion, resource: "leases", object: &coordinationv1.Lease{},
			list: &coordinationv1.LeaseList{}},
		{gv: eventsv1.SchemeGroupVersion, resource: "events", shortNames: []string{"ev"}, object: &eventsv1.Event{},
			list: &eventsv1.EventList{}, fields: eventFields, ttl: eventSeconds},
		{gv: discoveryv1.SchemeGroupVersion, resource: "endpointslices", counted: true,
			object: &discoveryv1.EndpointSlice{}, list: &discoveryv1.EndpointSliceList{}},

		{gv: schedulingv1.SchemeGroupVersion, resource: "priorityclasses", shortNames: []string{"pc"}, cluster: true,
			counted: true, object: &schedulingv1.PriorityClass{}, list: &schedulingv1.PriorityClassList{}},
		{gv: schedulingv1alpha2.SchemeGroupVersion, resource: "workloads", counted: true,
			object: &schedulingv1alpha2.Workload{}, list: &schedulingv1alpha2.WorkloadList{}},
		{gv: schedulingv1alpha2.SchemeGroupVersion, resource: "podgroups", counted: true,
			object: &schedulingv1alpha2.PodGroup{}, list: &schedulingv1alpha2.PodGroupList{}},

		{gv: storagev1.SchemeGroupVersion, resource: "storageclasses", shortNames: []string{"sc"}, cluster: true,
			object: &storagev1.StorageClass{}, list: &storagev1.StorageClassList{}},
		{gv: storagev1.SchemeGroupVersion, resource: "csidrivers", cluster: true, object: &storagev1.CSIDriver{},
			list: &storagev1.CSIDriverList{}},
		{gv: storagev1.SchemeGroupVersion, resource: "csinodes", cluster: true, object: &storagev1.CSINode{},
			list: &storagev1.CSINodeList{}},
		{gv: storagev1.SchemeGroupVersion, resource: "csistoragecapacities", object: &storagev1.CSIStorageCapacity{},
			list: &storagev1.CSIStorageCapacityList{}},
		{gv: storagev1.SchemeGroupVersion, resource: "volumeattachments", cluster: true,
			object: &storagev1.VolumeAttachment{}, list: &storagev1.VolumeAttachmentList{}},

		{gv: flowcontrolv1.SchemeGroupVersion, resource: "flowschemas", cluster: true, counted: true,
			object: &flowcontrolv1.FlowSchema{}, list: &flowcontrolv1.FlowSchemaList{}},
		{gv: flowcontrolv1.SchemeGroupVersion, resource: "prioritylevelconfigurations", cluster: true, counted: true,
			object: &flowcontrolv1.PriorityLevelConfiguration{}, list: &flowcontrolv1.PriorityLevelConfigurationList{}},
	}
	all = append(all, resourceKinds()...)
	for _, k := range all {
		if k.gv.Empty() {
			k.gv = corev1.SchemeGroupVersion
		}
		if k.singular == "" {
			k.singular = singular(k.resource)
		}
	}
	return all
}

// resourceKinds are those of dynamic resource allocation. Those without v1 come in the versions that they have.
func resourceKinds() []*kind {
	v1 := resourcev1.SchemeGroupVersion
	return []*kind{
		{gv: v1, resource: "deviceclasses", singular: "deviceclass", cluster: true, counted: true,
			object: &resourcev1.DeviceClass{}, list: &resourcev1.DeviceClassList{}},
		{gv: v1, resource: "resourceclaims", object: &resourcev1.ResourceClaim{}, list: &resourcev1.ResourceClaimList{},
			prepareUpdate: forgetDevices, validateUpdate: checkClaim},
		{gv: v1, resource: "resourceclaimtemplates", object: &resourcev1.ResourceClaimTemplate{},
			list: &resourcev1.ResourceClaimTemplateList{}},
		{gv: v1, resource: "resourceslices", cluster: true, counted: true, object: &resourcev1.ResourceSlice{},
			list: &resourcev1.ResourceSliceList{},
			fields: func(o runtime.Object) fields.Set {
				spec := &o.(*resourcev1.ResourceSlice).Spec
				set := fields.Set{"spec.driver": spec.Driver, "spec.nodeName": ""}
				if spec.NodeName != nil {
					set["spec.nodeName"] = *spec.NodeName
				}
				return set
			}},
		{gv: resourcev1beta2.SchemeGroupVersion, resource: "devicetaintrules", cluster: true, counted: true,
			prepare: prepareTaintRule, object: &resourcev1beta2.DeviceTaintRule{}, list: &resourcev1beta2.DeviceTaintRuleList{}},
		{gv: resourcev1alpha3.SchemeGroupVersion, resource: "resourcepoolstatusrequests", cluster: true, counted: true,
			object: &resourcev1alpha3.ResourcePoolStatusRequest{}, list: &resourcev1alpha3.ResourcePoolStatusRequestList{}},
	}
}

func singular(resource string) string {
	for _, ending := range []struct{ plural, singular string }{
		{"classes", "class"}, {"policies", "policy"}, {"capacities", "capacity"}, {"s", ""},
	} {
		if n := len(resource) - len(ending.plural); n > 0 && resource[n:] == ending.plural {
			return resource[:n] + ending.singular
		}
	}
	return resource
}
