// Cost says how much processor time an API server takes for each request of a pod's way to its node, by encoding.
//
//	cost -server https://127.0.0.1:6443 -token T -pid PID [-n 1000]
//
// Requests of one kind are sent one after the other, eight at a time, each kind in JSON and in protobuf, with the same
// number of watches of pods and claims in the same encoding as scheduler and controllers have.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

var (
	server = flag.String("server", "", "the API server")
	token  = flag.String("token", "", "a token that may do everything")
	pid    = flag.Int("pid", 0, "the process of the server")
	count  = flag.Int("n", 1000, "how many requests of each kind")
	rounds = flag.Int("rounds", 1, "how often")
)

const namespace = "cost"

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// processor is the processor time of the server, in milliseconds.
func processor() float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", *pid))
	check(err)
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+2:])
	user, err := strconv.ParseFloat(fields[11], 64)
	check(err)
	system, err := strconv.ParseFloat(fields[12], 64)
	check(err)
	return (user + system) * 10
}

func client(contentType string) *kubernetes.Clientset {
	made, err := kubernetes.NewForConfig(&rest.Config{
		Host: *server, BearerToken: *token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig:   rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType},
	})
	check(err)
	return made
}

// each does something for every pod, eight at a time, and returns milliseconds of the server for one.
func each(do func(i int) error) float64 {
	before := processor()
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := worker; i < *count; i += 8 {
				check(do(i))
			}
		})
	}
	wait.Wait()
	// What watches are sent afterwards counts as well.
	time.Sleep(300 * time.Millisecond)
	return (processor() - before) / float64(*count)
}

func follow(ctx context.Context, c *kubernetes.Clientset) {
	for range 2 {
		pods, err := c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
		check(err)
		claims, err := c.ResourceV1().ResourceClaims("").Watch(ctx, metav1.ListOptions{})
		check(err)
		for _, events := range []watch.Interface{pods, claims} {
			go func() {
				for range events.ResultChan() {
				}
			}()
		}
	}
}

func run(name, contentType string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := client(contentType)
	follow(ctx, c)
	pods, claims := c.CoreV1().Pods(namespace), c.ResourceV1().ResourceClaims(namespace)
	made := make([]*corev1.Pod, *count)
	reserved := make([]*resourcev1.ResourceClaim, *count)
	object := func(i int) string { return fmt.Sprintf("%s-%d", name, i) }
	say := func(what string, cost float64) { fmt.Printf("%-11s %-32s %6.2f ms\n", name, what, cost) }

	say("create a pod", each(func(i int) (err error) {
		made[i], err = pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: object(i), Labels: map[string]string{"app": "x"}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
				}},
				ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("t")}},
			},
		}, metav1.CreateOptions{})
		return err
	}))
	say("create a claim", each(func(i int) (err error) {
		reserved[i], err = claims.Create(ctx, &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: object(i), Finalizers: []string{"resource.kubernetes.io/delete-protection"}},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c"},
			}}}},
		}, metav1.CreateOptions{})
		return err
	}))
	half := *count / 2
	status := func(i int) []corev1.PodResourceClaimStatus {
		return []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To(object(i))}}
	}
	one := func(first, last int, do func(i int) error) float64 {
		return each(func(i int) error {
			if i < first || i >= last {
				return nil
			}
			return do(i)
		}) * float64(*count) / float64(last-first)
	}
	say("patch a pod's status", one(0, half, func(i int) (err error) {
		body := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"resourceClaimStatuses":[{"name":"gpu","resourceClaimName":%q}]}}`, made[i].UID, object(i))
		made[i], err = pods.Patch(ctx, object(i), types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
		return err
	}))
	say("put a pod's status", one(half, *count, func(i int) (err error) {
		made[i].Status.ResourceClaimStatuses = status(i)
		made[i], err = pods.UpdateStatus(ctx, made[i], metav1.UpdateOptions{})
		return err
	}))
	say("put a claim's status", each(func(i int) (err error) {
		claim := reserved[i]
		claim.Status = resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d.example.com", Pool: "p", Device: fmt.Sprint("d-", i)}},
			}},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: object(i), UID: made[i].UID}},
		}
		_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return err
	}))
	say("bind a pod", each(func(i int) error {
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: object(i), UID: made[i].UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
		}, metav1.CreateOptions{})
	}))
	list := each(func(i int) error {
		if i > 10 {
			return nil
		}
		_, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err
	})
	say(fmt.Sprintf("list %d pods", *count), list*float64(*count)/11)
	// Out of the way of the next encoding.
	cancel()
	check(c.CoreV1().Pods(namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{}))
}

func main() {
	flag.Parse()
	c := client(runtime.ContentTypeJSON)
	_, err := c.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	check(err)
	idle := processor()
	time.Sleep(5 * time.Second)
	fmt.Printf("idle      %6.2f ms a second\n", (processor()-idle)/5)
	for round := range *rounds {
		run(fmt.Sprintf("json-%d", round), runtime.ContentTypeJSON)
		run(fmt.Sprintf("protobuf-%d", round), runtime.ContentTypeProtobuf)
	}
}
