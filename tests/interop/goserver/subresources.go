package main

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// request is what the subresources have in common whose objects are not stored: the kind that clients send.
type request struct {
	kind   schema.GroupVersionKind
	object runtime.Object
}

var (
	bindings  = request{corev1.SchemeGroupVersion.WithKind("Binding"), &corev1.Binding{}}
	evictions = request{policyv1.SchemeGroupVersion.WithKind("Eviction"), &policyv1.Eviction{}}
	scales    = request{autoscalingv1.SchemeGroupVersion.WithKind("Scale"), &autoscalingv1.Scale{}}
)

func (r request) New() runtime.Object { return newOf(r.object) }
func (r request) Destroy()            {}

func (r request) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return r.kind }
