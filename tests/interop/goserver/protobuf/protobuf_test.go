// Package protobuf writes objects of Kubernetes' types in protobuf and in JSON, for the tests of allot's codec.
package protobuf

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// recording is what the tests of crates/schema read: a line for each object, with its kind, protobuf in base64, JSON.
const recording = "../../../../crates/schema/src/protobuf/tests/objects.txt"

var update = flag.Bool("update", false, "write the recording anew")

// kinds are those that allot's components read or write in protobuf.
var kinds = []runtime.Object{
	&appsv1.ControllerRevision{}, &appsv1.DaemonSet{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{},
	&batchv1.CronJob{}, &batchv1.Job{}, &coordinationv1.Lease{}, &discoveryv1.EndpointSlice{}, &eventsv1.Event{},
	&corev1.Binding{}, &corev1.ConfigMap{}, &corev1.Endpoints{}, &corev1.Namespace{}, &corev1.Node{},
	&corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &corev1.Pod{}, &corev1.ConfigMapList{}, &corev1.ResourceQuota{},
	&corev1.Secret{}, &corev1.Service{}, &corev1.ServiceAccount{}, &policyv1.PodDisruptionBudget{}, &rbacv1.ClusterRole{},
	&resourcev1.DeviceClass{}, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimTemplate{},
	&resourcev1.ResourceSlice{}, &resourcev1alpha3.ResourcePoolStatusRequest{}, &storagev1.CSIDriver{},
	&storagev1.CSINode{}, &storagev1.CSIStorageCapacity{}, &storagev1.StorageClass{}, &storagev1.VolumeAttachment{},
	&storagev1.VolumeAttributesClass{}, &metav1.Status{},
}

// filler fills values: everything in them, or half of it.
type filler struct {
	random *rand.Rand
	half   bool
}

func (f filler) fill(v reflect.Value, depth int) {
	n := f.random.Intn(1000)
	switch value := v.Addr().Interface().(type) {
	case *metav1.Time:
		*value = metav1.Unix(1_700_000_000+int64(n), 0).Rfc3339Copy()
		value.Time = value.UTC()
		return
	case *metav1.MicroTime:
		*value = metav1.NewMicroTime(time.Unix(1_700_000_000, int64(n)*1000).UTC())
		return
	case *resource.Quantity:
		*value = resource.MustParse([]string{"0", "100m", "1Gi", "5", "1500M"}[n%5])
		return
	case *intstr.IntOrString:
		*value = intstr.FromInt32(int32(n - 500))
		if n%2 == 0 {
			*value = intstr.FromString("web")
		}
		return
	case *runtime.RawExtension:
		value.Raw = []byte(fmt.Sprintf(`{"n":%d,"text":"<&>"}`, n))
		return
	case *metav1.FieldsV1:
		value.Raw = []byte(fmt.Sprintf(`{"f:n%d":{}}`, n))
		return
	case *[]byte:
		// Protobuf has no entries of maps without bytes.
		*value = []byte{0, 255, byte(n)}
		return
	case *metav1.TypeMeta:
		return
	case *corev1.PodTemplateSpec:
		// Pods have all of it.
		value.Name = "a"
		return
	}
	if f.half && depth > 2 && n%2 == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if depth < 12 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+n%2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for i := range 2 {
			key, item := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(fmt.Sprintf("k%d", i))
			f.fill(item, depth+1)
			v.SetMapIndex(key, item)
		}
	case reflect.String:
		v.SetString([]string{"a", "ü\n\"", "x.example.com/y"}[n%3])
	case reflect.Bool:
		v.SetBool(n%2 == 1)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(n - 500))
	case reflect.Float64:
		v.SetFloat(float64(n) / 4)
	default:
		panic(v.Type().String())
	}
}

func objects(t *testing.T) []byte {
	var out bytes.Buffer
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	for _, kind := range kinds {
		gvks, _, err := scheme.Scheme.ObjectKinds(kind)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range int64(3) {
			object := kind.DeepCopyObject()
			// The first is empty.
			if seed > 0 {
				filler := filler{rand.New(rand.NewSource(seed)), seed > 1}
				filler.fill(reflect.ValueOf(object).Elem(), 0)
			}
			object.GetObjectKind().SetGroupVersionKind(gvks[0])
			var body bytes.Buffer
			if err := encoder.Encode(object, &body); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s %s %s\n", gvks[0].Kind, base64.StdEncoding.EncodeToString(body.Bytes()), text)
		}
	}
	return out.Bytes()
}

func TestTheRecordingIsWhatGoWrites(t *testing.T) {
	want := objects(t)
	if *update {
		if err := os.WriteFile(recording, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("objects.txt is not what Kubernetes' types encode to: run with -update")
	}
}
