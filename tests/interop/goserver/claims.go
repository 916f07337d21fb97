package main

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// forgetDevices drops the reports about devices that the claim does not have any more.
func forgetDevices(object, old runtime.Object) {
	claim := object.(*resourcev1.ResourceClaim)
	if len(claim.Status.Devices) == 0 || len(old.(*resourcev1.ResourceClaim).Status.Devices) == 0 {
		return
	}
	type device struct{ driver, pool, name string }
	held := map[device]bool{}
	if claim.Status.Allocation != nil {
		for _, r := range claim.Status.Allocation.Devices.Results {
			held[device{r.Driver, r.Pool, r.Device}] = true
		}
	}
	claim.Status.Devices = slices.DeleteFunc(claim.Status.Devices, func(d resourcev1.AllocatedDeviceStatus) bool {
		return !held[device{d.Driver, d.Pool, d.Device}]
	})
	if len(claim.Status.Devices) == 0 {
		claim.Status.Devices = nil
	}
}

// checkClaim refuses what would let two writers give a claim different devices, or take devices that are in use.
func checkClaim(object, old runtime.Object) field.ErrorList {
	claim, before := object.(*resourcev1.ResourceClaim), old.(*resourcev1.ResourceClaim)
	var wrong field.ErrorList
	if !apiequality.Semantic.DeepEqual(claim.Spec, before.Spec) {
		wrong = append(wrong, field.Invalid(field.NewPath("spec"), "", "field is immutable"))
	}
	status := field.NewPath("status")
	allocation := claim.Status.Allocation
	if before.Status.Allocation != nil && allocation != nil &&
		!apiequality.Semantic.DeepEqual(allocation, before.Status.Allocation) {
		wrong = append(wrong, field.Invalid(status.Child("allocation"), "", "field is immutable"))
	}
	if allocation == nil && len(claim.Status.ReservedFor) > 0 {
		wrong = append(wrong, field.Forbidden(status.Child("reservedFor"), "may not be specified when `allocated` is not set"))
	}
	if len(claim.Status.ReservedFor) > resourcev1.ResourceClaimReservedForMaxSize {
		wrong = append(wrong, field.TooMany(status.Child("reservedFor"), len(claim.Status.ReservedFor),
			resourcev1.ResourceClaimReservedForMaxSize))
	}
	if claim.DeletionTimestamp != nil && len(claim.Status.ReservedFor) > len(before.Status.ReservedFor) {
		wrong = append(wrong, field.Forbidden(status.Child("reservedFor"), "new entries may not be added while `deletionTimestamp` is set"))
	}
	return wrong
}

func prepareTaintRule(object runtime.Object) {
	now := metav1.Now()
	orPointer(&object.(*resourcev1beta2.DeviceTaintRule).Spec.Taint.TimeAdded, now)
}
