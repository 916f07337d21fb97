package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// parametersAsWritten are not what any program would print again: the server keeps them, and compares them, as bytes.
const parametersAsWritten = `{ "z": 1.0, "a": "<&>",  "n": 1e3 }`

// Parameters of drivers stay as they were written, whatever is done to their claim; a server that compares them refuses
// everything else.
func TestBytesOfDriversStay(t *testing.T) {
	c := newCluster(t)
	c.run(1)
	c.equip()
	ctx := context.Background()
	config := fmt.Sprintf(`{"opaque": {"driver": %q, "parameters": %s}}`, driver, parametersAsWritten)
	spec := fmt.Sprintf(`{"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}], "config": [%s]}}`, config)
	post := func(resource, metadata, spec string) {
		t.Helper()
		body := fmt.Sprintf(`{"metadata": %s, "spec": %s}`, metadata, spec)
		request := c.client.ResourceV1().RESTClient().Post().Namespace("default").Resource(resource)
		must(t, request.SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error())
	}
	post("resourceclaims", `{"name": "shared"}`, spec)
	post("resourceclaimtemplates", `{"name": "odd"}`, fmt.Sprintf(`{"spec": %s}`, spec))
	claims := c.client.ResourceV1().ResourceClaims("default")

	use := func(name string, source corev1.PodResourceClaim) *corev1.Pod {
		t.Helper()
		source.Name = "gpu"
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pod.Spec.Containers = []corev1.Container{{
			Name: "main", Image: "registry.invalid/main:1",
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
		}}
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{source}
		_, err := c.client.CoreV1().Pods("default").Create(ctx, pod, anyway)
		must(t, err)
		c.await(name+" is bound", func(ctx context.Context) error {
			pod, err = c.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err == nil && pod.Spec.NodeName == "" {
				err = fmt.Errorf("conditions are %v", pod.Status.Conditions)
			}
			return err
		})
		return pod
	}
	same := func(name string, users int) {
		t.Helper()
		c.await(name+" has its users", func(ctx context.Context) error {
			claim, err := claims.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, config := range claim.Spec.Devices.Config {
				if got := string(config.Opaque.Parameters.Raw); compact(got) != compact(parametersAsWritten) {
					t.Fatalf("parameters of %s are %s", name, got)
				}
			}
			if n := len(claim.Status.ReservedFor); n != users {
				return fmt.Errorf("%d users, wanted %d", n, users)
			}
			return nil
		})
	}
	shared := corev1.PodResourceClaim{ResourceClaimName: ptr.To("shared")}
	use("first", shared)
	same("shared", 1)
	use("second", shared)
	same("shared", 2)
	own := use("third", corev1.PodResourceClaim{ResourceClaimTemplateName: ptr.To("odd")})
	generated := *own.Status.ResourceClaimStatuses[0].ResourceClaimName
	remove := func(name string) {
		t.Helper()
		must(t, c.client.CoreV1().Pods("default").Delete(ctx, name, *metav1.NewDeleteOptions(0)))
	}
	remove("first")
	same("shared", 1)
	remove("second")
	same("shared", 0)
	remove("third")
	must(t, claims.Delete(ctx, "shared", metav1.DeleteOptions{}))
	for _, name := range []string{"shared", generated} {
		c.await(name+" is gone", func(ctx context.Context) error {
			_, err := claims.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("still there: %w", err)
		})
	}
}

// compact is the text as Go's JSON prints it within other JSON.
func compact(text string) string {
	escape := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, " ", "")
	return escape.Replace(text)
}
