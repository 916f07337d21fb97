package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// store serves the objects of a kind.
type store struct {
	*genericregistry.Store
	kind *kind
}

var (
	_ rest.StandardStorage    = &store{}
	_ rest.ShortNamesProvider = &store{}
)

func (s *store) ShortNames() []string { return s.kind.shortNames }

// newStore opens the objects of a kind in etcd, behind a watch cache.
func newStore(r *registry, k *kind, getter generic.RESTOptionsGetter) (*store, error) {
	way := strategy{ObjectTyper: r.scheme, NameGenerator: names.SimpleNameGenerator, kind: k, keeps: []string{"Status"}}
	resource := k.groupResource()
	s := &genericregistry.Store{
		NewFunc:                   k.new,
		NewListFunc:               k.newList,
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: resource,
		CreateStrategy:            way,
		UpdateStrategy:            way,
		DeleteStrategy:            way,
		ResetFieldsStrategy:       way,
		TableConvertor:            rest.NewDefaultTableConvertor(resource),
	}
	s.SingularQualifiedResource.Resource = k.singular
	switch k.resource {
	case "pods":
		s.DeleteStrategy = podDeletion{way}
	case "namespaces":
		way.keeps = []string{"Spec", "Status"}
		s.UpdateStrategy, s.ResetFieldsStrategy = way, way
		s.ShouldDeleteDuringUpdate = emptyNamespace
	}
	if k.gv.Group == eventsGroup {
		// The objects of the core group, as they are in memory and in etcd.
		core := r.find("", k.resource)
		s.NewFunc, s.NewListFunc = core.new, core.newList
		s.DefaultQualifiedResource.Group, s.SingularQualifiedResource.Group = "", ""
	}
	if k.ttl > 0 {
		s.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return k.ttl, nil }
	}
	options := &generic.StoreOptions{RESTOptions: getter, AttrFunc: k.attributes}
	if len(k.indexed) > 0 {
		options.TriggerFunc = storage.IndexerFuncs{}
		indexers := cache.Indexers{}
		for _, name := range k.indexed {
			options.TriggerFunc[name] = func(object runtime.Object) string { return k.fields(object)[name] }
			indexers[storage.FieldIndex(name)] = func(object any) ([]string, error) {
				return []string{k.fields(object.(runtime.Object))[name]}, nil
			}
		}
		options.Indexers = &indexers
	}
	if err := s.CompleteWithOptions(options); err != nil {
		return nil, fmt.Errorf("%s: %w", resource, err)
	}
	return &store{Store: s, kind: k}, nil
}

// attributes are what selectors see of an object.
func (k *kind) attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, nil, err
	}
	set := fields.Set{}
	if k.fields != nil {
		set = k.fields(object)
	}
	set["metadata.name"] = accessor.GetName()
	if !k.cluster {
		set["metadata.namespace"] = accessor.GetNamespace()
	}
	return accessor.GetLabels(), set, nil
}

// subresource serves a part of a kind's objects, which can be read and replaced: status, finalize.
type subresource struct{ of *genericregistry.Store }

var (
	_ rest.Patcher             = &subresource{}
	_ rest.ResetFieldsStrategy = &subresource{}
	_ rest.TableConvertor      = &subresource{}
)

// newSubresource keeps the named fields of an object as they were.
func newSubresource(s *store, keeps ...string) *subresource {
	of := *s.Store
	way := s.UpdateStrategy.(strategy)
	way.keeps = keeps
	of.UpdateStrategy = way
	of.ResetFieldsStrategy = way
	return &subresource{&of}
}

func (s *subresource) New() runtime.Object { return s.of.New() }
func (s *subresource) Destroy()            {}

func (s *subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.of.GetResetFields()
}

func (s *subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.of.Get(ctx, name, options)
}

func (s *subresource) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return s.of.ConvertToTable(ctx, object, options)
}

// Update never creates: an object is there before its parts.
func (s *subresource) Update(ctx context.Context, name string, change rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.of.Update(ctx, name, change, create, update, false, options)
}
