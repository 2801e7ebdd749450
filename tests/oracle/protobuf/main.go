// Kubernetes' own serializers, answering records: one JSON object a line in, one out.
//
// A record with a seed asks for an arbitrary object of a kind; one with a body, for the object that it encodes.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"reflect"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/randfill"
)

type question struct {
	Group, Version, Kind string
	Seed                 int64
	Body                 []byte
}

type answer struct {
	Error string `json:"error,omitempty"`
	// Body is an object in protobuf.
	Body []byte `json:"body,omitempty"`
	// Object is the same in JSON.
	Object json.RawMessage `json:"object,omitempty"`
}

type judge struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	proto  *protobuf.Serializer
}

func newJudge() judge {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme,
		corev1.AddToScheme, eventsv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, resourcev1.AddToScheme,
		resourcev1beta1.AddToScheme, resourcev1beta2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return judge{scheme, serializer.NewCodecFactory(scheme), protobuf.NewSerializer(scheme, scheme)}
}

// fill makes an object of arbitrary content; what is raw JSON is a small object, since arbitrary bytes are no JSON.
func (j judge) fill(object runtime.Object, seed int64) {
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), j.codecs).NilChance(0.4).NumElements(1, 2).MaxDepth(12)
	filler = filler.Funcs(
		func(raw *runtime.RawExtension, c randfill.Continue) {
			raw.Raw = fmt.Appendf(nil, `{"n":%d,"of":[{"n":null},0.5,""]}`, c.Intn(1000))
		},
		func(fields *metav1.FieldsV1, c randfill.Continue) {
			fields.SetRawBytes(fmt.Appendf(nil, `{"f:n%d":{".":{}}}`, c.Intn(1000)))
		},
	)
	filler.Fill(object)
}

func (j judge) ask(q question) answer {
	kind := schema.GroupVersionKind{Group: q.Group, Version: q.Version, Kind: q.Kind}
	object, err := j.scheme.New(kind)
	if err != nil {
		return answer{Error: err.Error()}
	}
	var encoded bytes.Buffer
	if q.Body != nil {
		if _, _, err = j.proto.Decode(q.Body, &kind, object); err != nil {
			return answer{Error: err.Error()}
		}
	} else {
		j.fill(object, q.Seed)
		object.GetObjectKind().SetGroupVersionKind(kind)
		if err = j.proto.Encode(object, &encoded); err != nil {
			return answer{Error: err.Error()}
		}
		// Times keep whole seconds in either form: what is compared is what was encoded.
		decoded := reflect.New(reflect.TypeOf(object).Elem()).Interface().(runtime.Object)
		if _, _, err = j.proto.Decode(encoded.Bytes(), &kind, decoded); err != nil {
			return answer{Error: err.Error()}
		}
		object = decoded
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	text, err := json.Marshal(object)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Body: encoded.Bytes(), Object: text}
}

func main() {
	judge := newJudge()
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q question
		if err := json.Unmarshal(line, &q); err != nil {
			panic(err)
		}
		if err := out.Encode(judge.ask(q)); err != nil {
			panic(err)
		}
	}
}
