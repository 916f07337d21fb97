package main

import (
	"context"
	"reflect"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy is how objects of a kind change: their status belongs to the subresource status, the rest does not.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind *kind
	// What an update does not change: "Status", or for the subresource status, "Spec".
	keeps []string
}

var (
	_ rest.RESTCreateStrategy              = strategy{}
	_ rest.RESTUpdateStrategy              = strategy{}
	_ rest.ResetFieldsStrategy             = strategy{}
	_ rest.GarbageCollectionDeleteStrategy = strategy{}
)

func (s strategy) NamespaceScoped() bool                                     { return !s.kind.cluster }
func (s strategy) Canonicalize(runtime.Object)                               {}
func (s strategy) AllowCreateOnUpdate() bool                                 { return s.kind.resource == "leases" }
func (s strategy) AllowUnconditionalUpdate() bool                            { return true }
func (s strategy) Validate(context.Context, runtime.Object) field.ErrorList  { return nil }
func (s strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (s strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.DeleteDependents
}

func (s strategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	if status, ok := part(object, "Status"); ok && !s.kind.bornWithStatus {
		status.SetZero()
	}
	if s.kind.counted {
		accessor, _ := meta.Accessor(object)
		accessor.SetGeneration(1)
	}
	if s.kind.prepare != nil {
		s.kind.prepare(object)
	}
}

func (s strategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	for _, kept := range s.keeps {
		if to, ok := part(object, kept); ok {
			from, _ := part(old, kept)
			to.Set(from)
		}
	}
	accessor, _ := meta.Accessor(object)
	before, _ := meta.Accessor(old)
	accessor.SetGeneration(before.GetGeneration())
	if s.kind.counted && !sameSpec(object, old) {
		accessor.SetGeneration(before.GetGeneration() + 1)
	}
	if s.kind.prepareUpdate != nil {
		s.kind.prepareUpdate(object, old)
	}
}

func (s strategy) ValidateUpdate(_ context.Context, object, old runtime.Object) field.ErrorList {
	if s.kind.validateUpdate == nil {
		return nil
	}
	return s.kind.validateUpdate(object, old)
}

// GetResetFields names what this strategy takes back, so that nobody comes to own it by server-side apply.
func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	reset := fieldpath.NewSet()
	for _, kept := range s.keeps {
		reset.Insert(fieldpath.MakePathOrDie(strings.ToLower(kept)))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(s.kind.gv.String()): reset}
}

// part is the field of an object, if its type has it.
func part(object runtime.Object, name string) (reflect.Value, bool) {
	value := reflect.ValueOf(object).Elem().FieldByName(name)
	return value, value.IsValid()
}

// sameSpec says whether two objects want the same. Kinds without specification are compared without their metadata.
func sameSpec(object, old runtime.Object) bool {
	a, ok := part(object, "Spec")
	if ok {
		b, _ := part(old, "Spec")
		return apiequality.Semantic.DeepEqual(a.Interface(), b.Interface())
	}
	bare := func(o runtime.Object) runtime.Object {
		o = o.DeepCopyObject()
		m, _ := part(o, "ObjectMeta")
		m.Set(reflect.ValueOf(metav1.ObjectMeta{}))
		return o
	}
	return apiequality.Semantic.DeepEqual(bare(object), bare(old))
}
