// The CEL of k8s.io/dynamic-resource-allocation, answering records: one JSON object a line in, one out.
//
// A record is an expression and a device; the answer says whether it compiles, and what it evaluates to.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

type question struct {
	Expression string
	// Derived: the expression is a derived attribute, not a selector.
	Derived bool
	Driver  string
	Device  resourceapi.Device
}

type answer struct {
	CompileError string                       `json:"compileError,omitempty"`
	RuntimeError string                       `json:"runtimeError,omitempty"`
	Matches      *bool                        `json:"matches,omitempty"`
	Attribute    *resourceapi.DeviceAttribute `json:"attribute,omitempty"`
	// MostCost is the estimate by which the API server refuses expressions.
	MostCost uint64 `json:"mostCost"`
}

func ask(compile func(string, cel.Options) cel.CompilationResult, q question) answer {
	compiled := compile(q.Expression, cel.Options{DerivedAttribute: q.Derived})
	if compiled.Error != nil {
		return answer{CompileError: compiled.Error.Error()}
	}
	evaluated := evaluate(compiled, q)
	evaluated.MostCost = compiled.MaxCost
	return evaluated
}

func evaluate(compiled cel.CompilationResult, q question) answer {
	device := cel.Device{
		Driver:                   q.Driver,
		AllowMultipleAllocations: q.Device.AllowMultipleAllocations,
		Attributes:               q.Device.Attributes,
		Capacity:                 q.Device.Capacity,
	}
	if q.Derived {
		attribute, _, err := compiled.EvaluateDerivedAttribute(context.Background(), device)
		if err != nil {
			return answer{RuntimeError: err.Error()}
		}
		return answer{Attribute: attribute}
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), device)
	if err != nil {
		return answer{RuntimeError: err.Error()}
	}
	return answer{Matches: &matches}
}

func main() {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	in := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	out := json.NewEncoder(os.Stdout)
	for in.More() {
		var q question
		if err := in.Decode(&q); err != nil {
			panic(err)
		}
		if err := out.Encode(ask(compiler.CompileCELExpression, q)); err != nil {
			panic(err)
		}
	}
}
