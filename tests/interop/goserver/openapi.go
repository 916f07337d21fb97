package main

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// definitions describes the types of a scheme, from the Go types and their tags. The tracking of field owners needs
// it: which fields are there, and which lists are merged by which key.
func definitions(scheme *runtime.Scheme) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		d := describer{ref: ref, done: map[string]common.OpenAPIDefinition{}}
		for _, known := range scheme.AllKnownTypes() {
			d.describe(known)
		}
		for _, extra := range []any{
			metav1.APIGroup{}, metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{}, metav1.Patch{},
			metav1.DeleteOptions{}, metav1.Status{}, metav1.WatchEvent{}, version.Info{},
		} {
			d.describe(reflect.TypeOf(extra))
		}
		return d.done
	}
}

type describer struct {
	ref  common.ReferenceCallback
	done map[string]common.OpenAPIDefinition
}

// describe adds the definition of a named type and of those that it has, and returns its name.
func (d *describer) describe(t reflect.Type) string {
	name := util.GetCanonicalTypeName(reflect.New(t).Elem().Interface())
	if _, done := d.done[name]; done {
		return name
	}
	d.done[name] = common.OpenAPIDefinition{} // types may have themselves
	definition := common.OpenAPIDefinition{}
	if leaf, ok := reflect.New(t).Elem().Interface().(interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}); ok {
		definition.Schema.Type = leaf.OpenAPISchemaType()
		definition.Schema.Format = leaf.OpenAPISchemaFormat()
		if len(definition.Schema.Type) == 0 {
			definition.Schema.Type = []string{"object"}
		}
		d.done[name] = definition
		return name
	}
	definition.Schema.Type = []string{"object"}
	definition.Schema.Properties = map[string]spec.Schema{}
	d.fields(t, &definition)
	d.done[name] = definition
	return name
}

func (d *describer) fields(t reflect.Type, into *common.OpenAPIDefinition) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-":
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			d.fields(f.Type, into)
		case name == "" && strings.Contains(options, "inline"):
			d.fields(f.Type, into)
		case name != "":
			schema := d.schema(f.Type, into)
			if f.Type.Kind() == reflect.Slice && strings.Contains(f.Tag.Get("patchStrategy"), "merge") {
				kind := "set"
				if key := f.Tag.Get("patchMergeKey"); key != "" {
					kind = "map"
					schema.AddExtension("x-kubernetes-list-map-keys", []any{key})
				}
				schema.AddExtension("x-kubernetes-list-type", kind)
			}
			into.Schema.Properties[name] = schema
		}
	}
}

func (d *describer) schema(t reflect.Type, owner *common.OpenAPIDefinition) spec.Schema {
	one := func(kind, format string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{kind}, Format: format}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem(), owner)
	case reflect.Bool:
		return one("boolean", "")
	case reflect.String:
		return one("string", "")
	case reflect.Float32, reflect.Float64:
		return one("number", "double")
	case reflect.Int64, reflect.Uint64:
		return one("integer", "int64")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return one("integer", "int32")
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return one("string", "byte")
		}
		items := d.schema(t.Elem(), owner)
		out := one("array", "")
		out.Items = &spec.SchemaOrArray{Schema: &items}
		out.AddExtension("x-kubernetes-list-type", "atomic")
		return out
	case reflect.Map:
		values := d.schema(t.Elem(), owner)
		out := one("object", "")
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
		return out
	case reflect.Struct:
		name := d.describe(t)
		owner.Dependencies = append(owner.Dependencies, name)
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: d.ref(name)}}
	}
	return one("object", "") // interfaces: anything
}
