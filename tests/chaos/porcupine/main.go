// Porcupine (github.com/anishathalye/porcupine) looks whether histories are linearizable. tests/chaos/outside.py writes them, a line of JSON for each operation.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// An operation as a client saw it: what it asked, what it got, and from when until when, in nanoseconds.
type operation struct {
	Model  string
	Key    string
	Kind   string
	Begin  int64
	End    int64
	Input  int
	Output int
}

// unknown is the output of an operation whose client got none. It may happen at any time, or after everything else, which nobody sees.
const unknown = -1

// A counter: `bump` adds one and returns the sum, `read` returns it.
func counter(state, input, output interface{}) (bool, interface{}) {
	now, asked, got := state.(int), input.(operation), output.(int)
	if asked.Kind == "bump" {
		return got == unknown || got == now+1, now + 1
	}
	return got == now, now
}

// A list to which one writer appends, as a number: its length. `append` adds the element after the last one, `next` returns the element after a place, and
// `end` says that there is none.
func list(state, input, output interface{}) (bool, interface{}) {
	length, asked, got := state.(int), input.(operation), output.(int)
	switch asked.Kind {
	case "append":
		return asked.Input == length+1, length + 1
	case "next":
		return got == asked.Input+1 && got <= length, length
	default:
		return asked.Input == length, length
	}
}

var models = map[string]porcupine.Model{
	"counter": {Init: func() interface{} { return 0 }, Step: counter},
	"list":    {Init: func() interface{} { return 0 }, Step: list},
}

func main() {
	histories := map[string]map[string][]porcupine.Operation{"counter": {}, "list": {}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			log.Fatal(err)
		}
		found := porcupine.Operation{Input: one, Call: one.Begin, Output: one.Output, Return: one.End}
		histories[one.Model][one.Key] = append(histories[one.Model][one.Key], found)
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
	failed := false
	for _, name := range []string{"counter", "list"} {
		operations, bad := 0, []string{}
		for key, history := range histories[name] {
			operations += len(history)
			if result := porcupine.CheckOperationsTimeout(models[name], history, time.Minute); result != porcupine.Ok {
				bad = append(bad, fmt.Sprintf("%s (%s)", key, result))
			}
		}
		sort.Strings(bad)
		fmt.Printf("%s: %d histories, %d operations, %d not linearizable %v\n", name, len(histories[name]), operations, len(bad), bad)
		failed = failed || len(bad) > 0
	}
	if failed {
		os.Exit(1)
	}
}
