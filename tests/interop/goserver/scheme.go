package main

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// kind is one kind of object that is served, in one version.
type kind struct {
	gv         schema.GroupVersion
	resource   string
	singular   string
	shortNames []string
	cluster    bool // not in a namespace
	object     runtime.Object
	list       runtime.Object

	// counted objects have a metadata.generation, which grows with changes of their specification.
	counted bool
	// bornWithStatus objects may be created with one.
	bornWithStatus bool
	// withScale objects have the subresource scale.
	withScale bool
	// What a new object gets that clients do not decide, after its status was cleared.
	prepare func(object runtime.Object)
	// What an update brings along that clients do not write.
	prepareUpdate func(object, old runtime.Object)
	// What is wrong with an update of the object or of its status.
	validateUpdate func(object, old runtime.Object) field.ErrorList
	// Fields, beyond name and namespace, that lists and watches can be limited to.
	fields func(object runtime.Object) fields.Set
	// Fields with an index in the watch cache.
	indexed []string
	// Lifetime of objects in seconds; 0: without end.
	ttl uint64
}

func (k *kind) name() string { return reflect.TypeOf(k.object).Elem().Name() }

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.gv.Group, Resource: k.resource}
}

func (k *kind) new() runtime.Object     { return newOf(k.object) }
func (k *kind) newList() runtime.Object { return newOf(k.list) }

// newOf is an empty object of the same type.
func newOf(object runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(object).Elem()).Interface().(runtime.Object)
}

// registry knows all types. The library works on "internal" versions of objects; here they are the versions of the
// wire, each type registered under both names, so that nothing has to be converted.
type registry struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	kinds  []*kind
	groups []schema.GroupVersion // without repetition, in the order of preference
}

func newRegistry(kinds []*kind) (*registry, error) {
	scheme := runtime.NewScheme()
	r := &registry{scheme: scheme, kinds: kinds}
	seen := map[schema.GroupVersion]bool{}
	for _, k := range kinds {
		if !seen[k.gv] {
			seen[k.gv] = true
			r.groups = append(r.groups, k.gv)
			metav1.AddToGroupVersion(scheme, k.gv)
		}
		scheme.AddKnownTypes(k.gv, k.object, k.list)
		internal := schema.GroupVersion{Group: k.gv.Group, Version: runtime.APIVersionInternal}
		if k.gv.Group != eventsGroup {
			scheme.AddKnownTypes(internal, k.object, k.list)
		}
		if err := scheme.AddFieldLabelConversionFunc(k.gv.WithKind(k.name()), k.fieldLabel); err != nil {
			return nil, err
		}
	}
	versions := map[string][]schema.GroupVersion{}
	for _, gv := range r.groups {
		versions[gv.Group] = append(versions[gv.Group], gv)
	}
	for _, of := range versions {
		if err := scheme.SetVersionPriority(of...); err != nil {
			return nil, err
		}
	}
	for _, r := range []request{bindings, evictions, scales} {
		scheme.AddKnownTypes(r.kind.GroupVersion(), r.object)
		scheme.AddKnownTypes(schema.GroupVersion{Group: r.kind.Group, Version: runtime.APIVersionInternal}, r.object)
	}
	if err := shareEvents(scheme); err != nil {
		return nil, err
	}
	addDefaults(scheme)
	r.codecs = serializer.NewCodecFactory(scheme)
	return r, nil
}

// fieldLabel says which fields a selector may name.
func (k *kind) fieldLabel(label, value string) (string, string, error) {
	if k.fields != nil {
		if _, known := k.fields(k.new())[label]; known {
			return label, value, nil
		}
	}
	return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
}

// find is the kind with this group and resource.
func (r *registry) find(group, resource string) *kind {
	for _, k := range r.kinds {
		if k.gv.Group == group && k.resource == resource {
			return k
		}
	}
	panic("no kind " + group + "/" + resource)
}
