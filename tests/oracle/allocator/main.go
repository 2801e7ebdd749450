// The allocator of k8s.io/dynamic-resource-allocation, answering records: one JSON object a line in, one out.
//
// {"op": "allocate"} asks for devices on one node; the record is a whole case, its fields those of `question`.
// {"op": "cluster"} sets up many nodes, {"op": "taken"} says what is taken there; {"op": "place"} then asks for devices on
// the first node that has them and keeps what it gave, as a scheduler does. The answer says how long that took.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type device struct {
	Driver, Pool, Device, ShareID string
	Capacity                      map[resourceapi.QualifiedName]resource.Quantity
}

type question struct {
	Op        string
	Features  structured.Features
	Classes   []*resourceapi.DeviceClass
	Slices    []*resourceapi.ResourceSlice
	Node      *v1.Node
	Nodes     []string
	Claims    []*resourceapi.ResourceClaim
	Allocated struct{ Devices, SharedDevices, ConsumedCapacity []device }
	// Seconds after which the answer is "timeout"; the search is exponential in places.
	Limit float64
}

type answer struct {
	Results   []resourceapi.AllocationResult `json:"results"`
	Error     *string                        `json:"error"`
	ErrorKind *string                        `json:"errorKind"`
	Node      string                         `json:"node,omitempty"`
	Seconds   float64                        `json:"seconds,omitempty"`
}

func (a answer) failed(err error, kind string) answer {
	text := err.Error()
	a.Results, a.Error, a.ErrorKind = nil, &text, &kind
	return a
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("class %s not found", name)
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return nil, errors.New("not needed") }

// cluster is what outlives one question.
type cluster struct {
	question
	state structured.AllocatedState
	cache *cel.Cache
}

func newCluster(q question) *cluster {
	features := cel.Features{
		EnableConsumableCapacity: q.Features.ConsumableCapacity,
		EnableListTypeAttributes: q.Features.ListTypeAttributes,
	}
	c := &cluster{question: q, cache: cel.NewCache(100, features)}
	c.take(q)
	return c
}

// take makes what the question says the state of the cluster.
func (c *cluster) take(q question) {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, d := range q.Allocated.Devices {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(d.Driver, d.Pool, d.Device))
	}
	for _, d := range q.Allocated.SharedDevices {
		share := types.UID(d.ShareID)
		id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, &share))
	}
	for _, d := range q.Allocated.ConsumedCapacity {
		id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, d.Capacity))
	}
	c.state = state
}

// allocate tries the nodes in order, until one has devices for all claims. Some objects that the API server would refuse
// make the library panic; the answer to these is "panic".
func (c *cluster) allocate(claims []*resourceapi.ResourceClaim, nodes []*v1.Node, limit float64) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{}.failed(fmt.Errorf("%v", r), "panic")
		}
	}()
	timeout := time.Duration(limit * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	lister := classes{}
	for _, class := range c.Classes {
		lister[class.Name] = class
	}
	started := time.Now()
	allocator, err := structured.NewAllocator(ctx, c.Features, c.state, lister, c.Slices, c.cache)
	if err != nil {
		return answer{}.failed(err, "fatal")
	}
	for _, node := range nodes {
		results, err := allocator.Allocate(ctx, node, claims)
		a := answer{Results: results, Seconds: time.Since(started).Seconds()}
		switch {
		case err != nil && ctx.Err() != nil:
			return a.failed(err, "timeout")
		case err != nil && errors.Is(err, structured.ErrFailedAllocationOnNode):
			return a.failed(err, "node")
		case err != nil:
			return a.failed(err, "fatal")
		case results != nil:
			a.Node = node.Name
			return a
		}
	}
	return answer{Seconds: time.Since(started).Seconds()}
}

// place allocates and keeps what was given. The benchmark's devices are not shared.
func (c *cluster) place(claims []*resourceapi.ResourceClaim, limit float64) answer {
	nodes := make([]*v1.Node, len(c.Nodes))
	for i, name := range c.Nodes {
		nodes[i] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	a := c.allocate(claims, nodes, limit)
	for _, result := range a.Results {
		for _, d := range result.Devices.Results {
			c.state.AllocatedDevices.Insert(structured.MakeDeviceID(d.Driver, d.Pool, d.Device))
		}
	}
	return a
}

func main() {
	implementation := flag.String("implementation", "", "the only copy of the allocator to use; default: all")
	flag.Parse()
	if *implementation != "" {
		structured.EnableAllocators(*implementation)
	}
	in := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	out := json.NewEncoder(os.Stdout)
	var kept *cluster
	for in.More() {
		var q question
		if err := in.Decode(&q); err != nil {
			panic(err)
		}
		var a answer
		switch q.Op {
		case "cluster":
			kept = newCluster(q)
		case "taken":
			kept.take(q)
		case "place":
			a = kept.place(q.Claims, q.Limit)
		default:
			a = newCluster(q).allocate(q.Claims, []*v1.Node{q.Node}, q.Limit)
		}
		if err := out.Encode(a); err != nil {
			panic(err)
		}
	}
}
