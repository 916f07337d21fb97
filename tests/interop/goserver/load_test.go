package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	nodes          = 20
	devicesPerNode = 8
	pods           = nodes * devicesPerNode
	driver         = "gpu.example.com"
)

var anyway = metav1.CreateOptions{}

// sure repeats a request until the server has answered it.
func (c *cluster) sure(what string, request func(context.Context) error) {
	c.t.Helper()
	c.await(what, func(ctx context.Context) error {
		err := request(ctx)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// equip creates nodes with devices, and a template to ask for one.
func (c *cluster) equip() {
	c.t.Helper()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("200"),
	}
	each(nodes, func(i int) {
		name := fmt.Sprint("node-", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status = corev1.NodeStatus{Capacity: capacity, Allocatable: capacity}
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
		slice.Spec = resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1, Generation: 1},
		}
		for d := range devicesPerNode {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("gpu-", d)})
		}
		c.sure("node", func(ctx context.Context) error {
			_, err := c.client.CoreV1().Nodes().Create(ctx, node, anyway)
			return err
		})
		c.sure("slice", func(ctx context.Context) error {
			_, err := c.client.ResourceV1().ResourceSlices().Create(ctx, slice, anyway)
			return err
		})
	})
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}
	c.sure("class", func(ctx context.Context) error {
		_, err := c.client.ResourceV1().DeviceClasses().Create(ctx, class, anyway)
		return err
	})
	c.sure("template", func(ctx context.Context) error {
		_, err := c.client.ResourceV1().ResourceClaimTemplates("default").Create(ctx, template, anyway)
		return err
	})
}

// create makes pods first to last-1, each of which wants a device.
func (c *cluster) create(first, last int) {
	c.t.Helper()
	each(last-first, func(i int) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", first+i)}}
		pod.Spec.Containers = []corev1.Container{{
			Name: "main", Image: "registry.invalid/main:1",
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
		}}
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}}
		c.sure("pod", func(ctx context.Context) error {
			_, err := c.client.CoreV1().Pods("default").Create(ctx, pod, anyway)
			return err
		})
	})
}

// remove deletes pods first to last-1 at once, as their kubelets do in the end.
func (c *cluster) remove(first, last int) {
	c.t.Helper()
	each(last-first, func(i int) {
		c.sure("deletion", func(ctx context.Context) error {
			err := c.client.CoreV1().Pods("default").Delete(ctx, fmt.Sprint("pod-", first+i), *metav1.NewDeleteOptions(0))
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	})
}

// bound is how many of the pods have a node.
func (c *cluster) bound(ctx context.Context) (int, int, error) {
	list, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err
	}
	n := 0
	for _, pod := range list.Items {
		if pod.Spec.NodeName != "" {
			n++
		}
	}
	return n, len(list.Items), nil
}

// awaitBound waits until that many pods have a node.
func (c *cluster) awaitBound(wanted int) {
	c.t.Helper()
	c.await("pods are bound", func(ctx context.Context) error {
		n, all, err := c.bound(ctx)
		if err == nil && n < wanted {
			err = fmt.Errorf("%d of %d, wanted %d", n, all, wanted)
		}
		return err
	})
}

// twice names a device that two claims have.
func twice(claims []resourcev1.ResourceClaim) error {
	holders := map[string]string{}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			device := r.Driver + "/" + r.Pool + "/" + r.Device
			if other, taken := holders[device]; taken {
				return fmt.Errorf("%s has %s, and so has %s", claim.Name, device, other)
			}
			holders[device] = claim.Name
		}
	}
	return nil
}

// under runs pods through the cluster while `trouble` happens, and checks that nothing is lost, given twice or left.
// All devices are wanted all the time: what leaks is missed by the last pods.
func (c *cluster) under(trouble func()) {
	t := c.t
	t.Helper()
	c.equip()
	ctx, stop := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			list, err := c.client.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
			if err == nil {
				if err := twice(list.Items); err != nil {
					watched <- err
					return
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		watched <- nil
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.create(0, pods)
		c.awaitBound(pods / 2)
		// Their devices go to those that come now.
		c.remove(0, pods/4)
		c.create(pods, pods+pods/4)
	}()
	c.awaitBound(pods / 8)
	trouble()
	<-done
	c.awaitBound(pods)
	stop()
	must(t, <-watched)

	list, err := c.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	must(t, err)
	for _, pod := range list.Items {
		must(t, c.holds(&pod))
	}
	c.remove(0, pods+pods/4)
	c.await("all claims are gone", func(ctx context.Context) error {
		list, err := c.client.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left, such as %s", len(list.Items), list.Items[0].Name)
		}
		return err
	})
}

// holds checks that a bound pod has a device of its node, reserved for it.
func (c *cluster) holds(pod *corev1.Pod) error {
	if len(pod.Status.ResourceClaimStatuses) != 1 || pod.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
		return fmt.Errorf("%s has no claim in its status", pod.Name)
	}
	name := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
	claim, err := c.client.ResourceV1().ResourceClaims("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	reserved := claim.Status.ReservedFor
	if len(reserved) != 1 || reserved[0].UID != pod.UID {
		return fmt.Errorf("%s of %s is reserved for %v", name, pod.Name, reserved)
	}
	if claim.Status.Allocation == nil || claim.Status.Allocation.Devices.Results[0].Pool != pod.Spec.NodeName {
		return fmt.Errorf("%s of %s is not on its node", name, pod.Name)
	}
	return nil
}
