// Prints, as JSON, the protobuf messages of Kubernetes' built-in kinds: the numbers of fields stand in the `protobuf:` tags
// of the Go types of k8s.io/api, which typed clients encode with. Arguments: GROUP/VERSION/KIND; the core group is empty.
// Kinds that k8s.io/api does not have are left out.
package main

import (
	"encoding/json"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// leaves are the types that encode themselves by rules of their own; only their name is printed.
var leaves = map[string]string{
	"v1.Time":              "Time",
	"v1.MicroTime":         "MicroTime",
	"resource.Quantity":    "Quantity",
	"intstr.IntOrString":   "IntOrString",
	"runtime.RawExtension": "RawExtension",
	"v1.FieldsV1":          "FieldsV1",
}

// field is the number, the type and the marks of a field. The type is "string", "bytes", "bool", "int32", "int64",
// "double" or a message, with "[]" before it for a list and "{}" for a map from strings. The mark "?" says that Go's JSON
// leaves out the zero value, "+" that the fields of the message stand among those of its parent.
type field [3]any

type messages map[string]map[string]field

func main() {
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
	found, kinds := messages{}, map[string]string{}
	for _, argument := range os.Args[1:] {
		parts := strings.Split(argument, "/")
		kind := schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]}
		if type_, known := scheme.AllKnownTypes()[kind]; known {
			kinds[strings.TrimPrefix(argument, "/")] = found.add(type_)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"kinds": kinds, "messages": found}); err != nil {
		panic(err)
	}
}

// add describes a type and all that it refers to, and returns its name.
func (m messages) add(type_ reflect.Type) string {
	if leaf, is := leaves[type_.String()]; is {
		return leaf
	}
	name := path.Base(path.Dir(type_.PkgPath())) + "." + type_.String()
	if _, known := m[name]; !known {
		m[name] = map[string]field{}
		for i := range type_.NumField() {
			m.addField(m[name], type_.Field(i))
		}
	}
	return name
}

func (m messages) addField(fields map[string]field, from reflect.StructField) {
	tag := strings.Split(from.Tag.Get("protobuf"), ",")
	if len(tag) < 2 { // TypeMeta, which stands in the envelope
		return
	}
	number, err := strconv.Atoi(tag[1])
	if err != nil {
		panic(err)
	}
	name, options, _ := strings.Cut(from.Tag.Get("json"), ",")
	_, isLeaf := leaves[from.Type.String()]
	switch {
	case name == "":
		fields[from.Name] = field{number, m.typeName(from.Type), "+"}
	case isLeaf, from.Type.Kind() == reflect.Pointer:
		fields[name] = field{number, m.typeName(from.Type), ""}
	case from.Type.Kind() == reflect.Struct, strings.Contains(options, "omitempty"):
		fields[name] = field{number, m.typeName(from.Type), "?"}
	default:
		fields[name] = field{number, m.typeName(from.Type), ""}
	}
}

func (m messages) typeName(type_ reflect.Type) string {
	switch kind := type_.Kind(); kind {
	case reflect.Pointer:
		return m.typeName(type_.Elem())
	case reflect.Struct:
		return m.add(type_)
	case reflect.Slice:
		if type_.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + m.typeName(type_.Elem())
	case reflect.Map:
		return "{}" + m.typeName(type_.Elem())
	case reflect.Float64:
		return "double"
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64:
		return kind.String()
	case reflect.Int:
		return "int64"
	default:
		panic("no protobuf type is known for " + type_.String())
	}
}
