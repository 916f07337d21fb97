package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// namespaceStore serves namespaces: they end when the namespace controller has emptied them and took its finalizer.
type namespaceStore struct{ *store }

var _ rest.GracefulDeleter = &namespaceStore{}

func prepareNamespace(object runtime.Object) {
	namespace := object.(*corev1.Namespace)
	namespace.Status.Phase = corev1.NamespaceActive
	namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = namespace.Name
}

// emptyNamespace says whether an update takes the last finalizer of a namespace that is to end.
func emptyNamespace(ctx context.Context, key string, object, old runtime.Object) bool {
	return len(object.(*corev1.Namespace).Spec.Finalizers) == 0 &&
		genericregistry.ShouldDeleteDuringUpdate(ctx, key, object, old)
}

func (s *namespaceStore) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	found, err := s.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	namespace := found.(*corev1.Namespace)
	if namespace.DeletionTimestamp == nil {
		terminated, err := s.terminate(ctx, name, validate, options)
		return terminated, false, err
	}
	if len(namespace.Spec.Finalizers) > 0 {
		return nil, false, apierrors.NewConflict(s.kind.groupResource(), name, fmt.Errorf("The system is ensuring all content is "+
			"removed from this namespace.  Upon completion, this namespace will automatically be purged by the system."))
	}
	return s.Store.Delete(ctx, name, validate, options)
}

// terminate marks a namespace: nothing new comes into it, and the namespace controller empties it.
func (s *namespaceStore) terminate(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, error) {
	key, err := s.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	preconditions := &storage.Preconditions{}
	if options != nil && options.Preconditions != nil {
		preconditions.UID = options.Preconditions.UID
		preconditions.ResourceVersion = options.Preconditions.ResourceVersion
	}
	out := &corev1.Namespace{}
	err = s.Store.Storage.GuaranteedUpdate(ctx, key, out, false, preconditions,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			namespace := object.(*corev1.Namespace)
			if err := validate(ctx, namespace); err != nil {
				return nil, err
			}
			if namespace.DeletionTimestamp == nil {
				now := metav1.Now()
				namespace.DeletionTimestamp = &now
			}
			namespace.Status.Phase = corev1.NamespaceTerminating
			return namespace, nil
		}), false, nil)
	if storage.IsNotFound(err) {
		return nil, apierrors.NewNotFound(s.kind.groupResource(), name)
	}
	return out, err
}
