package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/recognizer"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// serve answers requests until the context ends.
func serve(ctx context.Context, o options) error {
	r, err := newRegistry(kinds())
	if err != nil {
		return err
	}
	config, ca, err := configure(r, o)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	features := serveroptions.NewFeatureOptions()
	features.EnablePriorityAndFairness = o.inFlight == 0
	if err := features.ApplyTo(config, client, factory); err != nil {
		return err
	}
	// Nothing is created in namespaces that are not there, or end.
	admission := serveroptions.NewAdmissionOptions()
	admission.RecommendedPluginOrder = []string{"NamespaceLifecycle"}
	err = admission.ApplyTo(config, factory, client, dynamicClient, utilfeature.DefaultFeatureGate, config.EffectiveVersion)
	if err != nil {
		return err
	}
	server, err := config.Complete(factory).New("goserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	getter := func(gv schema.GroupVersion) generic.RESTOptionsGetter { return etcdOptions(r, o, gv, config) }
	if err := install(server, r, getter); err != nil {
		return err
	}
	address := "https://" + config.SecureServing.Listener.Addr().String()
	err = server.AddPostStartHook("first-objects", func(hook genericapiserver.PostStartHookContext) error {
		if err := firstObjects(hook, client); err != nil {
			return err
		}
		if err := writeKubeconfigs(o.kubeconfig, o.dataDir+"/tokens", address, ca); err != nil {
			return err
		}
		fmt.Println("ready:", address)
		return nil
	})
	if err != nil {
		return err
	}
	return server.PrepareRun().RunWithContext(ctx)
}

// configure is everything but what is served: TLS, tokens, limits. It also returns the certificate to trust.
func configure(r *registry, o options) (*genericapiserver.Config, []byte, error) {
	config := genericapiserver.NewConfig(r.codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	names := openapinamer.NewDefinitionNamer(r.scheme)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions(r.scheme), names)
	config.SkipOpenAPIInstallation = true
	if o.inFlight > 0 {
		config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight = o.inFlight, o.inFlight
	}

	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.port))
	if err != nil {
		return nil, nil, err
	}
	serving := serveroptions.NewSecureServingOptions()
	serving.Listener = listener
	serving.BindAddress = net.IPv4(127, 0, 0, 1)
	serving.ServerCert.CertDirectory = o.dataDir + "/pki"
	serving.ServerCert.PairName = "server"
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, nil, err
	}
	if err := serving.WithLoopback().ApplyToConfig(config); err != nil {
		return nil, nil, err
	}
	ca, err := os.ReadFile(o.dataDir + "/pki/server.crt")
	if err != nil {
		return nil, nil, err
	}

	if err := makeTokens(o.dataDir + "/tokens"); err != nil {
		return nil, nil, err
	}
	config.Authentication.Authenticator = group.NewAuthenticatedGroupAdder(bearertoken.New(&tokens{path: o.dataDir + "/tokens"}))
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	return config, ca, nil
}

// etcdOptions is how objects of a group are stored: as protobuf, below the prefix of Kubernetes.
func etcdOptions(r *registry, o options, gv schema.GroupVersion, config *genericapiserver.Config) generic.RESTOptionsGetter {
	stored := gv
	if gv.Group == eventsGroup {
		stored = schema.GroupVersion{Version: "v1"}
	}
	info, _ := runtime.SerializerInfoForMediaType(r.codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	internal := schema.GroupVersion{Group: stored.Group, Version: runtime.APIVersionInternal}
	codec := r.codecs.CodecForVersions(info.Serializer, recognizer.NewDecoder(info.Serializer, r.codecs.UniversalDeserializer()),
		stored, internal)
	storage := storagebackend.NewDefaultConfig("/registry", codec)
	storage.EncodeVersioner = stored
	storage.Transport.ServerList = []string{o.etcd}
	storage.CompactionInterval = o.compaction
	storage.StorageObjectCountTracker = config.StorageObjectCountTracker
	etcd := serveroptions.NewEtcdOptions(storage)
	return etcd.CreateRESTOptionsGetter(&serveroptions.SimpleStorageFactory{StorageConfig: etcd.StorageConfig}, nil)
}

// install serves every kind of the registry with its subresources.
func install(server *genericapiserver.GenericAPIServer, r *registry, getter func(schema.GroupVersion) generic.RESTOptionsGetter) error {
	stores := map[schema.GroupResource]*store{}
	served := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, k := range r.kinds {
		s, err := newStore(r, k, getter(k.gv))
		if err != nil {
			return err
		}
		stores[k.groupResource()] = s
		if served[k.gv] == nil {
			served[k.gv] = map[string]rest.Storage{}
		}
		in := served[k.gv]
		in[k.resource] = s
		if _, has := part(k.object, "Status"); has {
			in[k.resource+"/status"] = newSubresource(s, "Spec")
		}
		if k.withScale {
			in[k.resource+"/scale"] = &scale{scales, s}
		}
		if k.resource == "namespaces" {
			in["namespaces"] = &namespaceStore{s}
			in["namespaces/finalize"] = newSubresource(s, "Status")
		}
	}
	core := served[schema.GroupVersion{Version: "v1"}]
	pods := stores[schema.GroupResource{Resource: "pods"}]
	pods.BeginCreate = priorities{stores[schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}]}.admit
	core["pods/binding"] = &binding{bindings, pods}
	core["pods/resize"] = newSubresource(pods, "Status")
	core["pods/eviction"] = &eviction{evictions, pods, stores[schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}]}

	groups := map[string]*genericapiserver.APIGroupInfo{}
	var order []*genericapiserver.APIGroupInfo
	for _, gv := range r.groups {
		info := groups[gv.Group]
		if info == nil {
			made := genericapiserver.NewDefaultAPIGroupInfo(gv.Group, r.scheme, runtime.NewParameterCodec(r.scheme), r.codecs)
			info = &made
			groups[gv.Group] = info
			order = append(order, info)
		}
		info.VersionedResourcesStorageMap[gv.Version] = served[gv]
	}
	for _, info := range order {
		var err error
		if info == groups[""] {
			err = server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, info)
		} else {
			err = server.InstallAPIGroup(info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
