// Package config checks a dispatch's config key by key. Every error names the key and what is accepted.
package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Bounds are those that a caller may ask for, whatever else a worker's config has.
type Bounds struct {
	MaxTurns        uint32  `json:"maxTurns"`
	MaxBudgetUSD    float64 `json:"maxBudgetUsd"`
	DeadlineSeconds uint32  `json:"deadlineSeconds"`
}

// Read fills the fields of `into`, a pointer to a struct: a string is a text that is not blank, a bool a flag, a
// uint32 or an int a whole number from 1 on (to the tag `max`), a float64 an amount above 0. A field is named by its
// tag `json`. Keys that no field has are refused.
func Read(text string, into any) (Bounds, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &values); err != nil || values == nil {
		return Bounds{}, fmt.Errorf("config must be a JSON object")
	}
	var bounds Bounds
	var known []string
	for _, fields := range []reflect.Value{reflect.ValueOf(&bounds).Elem(), reflect.ValueOf(into).Elem()} {
		for i := range fields.NumField() {
			field := fields.Type().Field(i)
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() || key == "-" {
				continue
			}
			if key == "" {
				key = field.Name
			}
			known = append(known, key)
			value, there := values[key]
			delete(values, key)
			if !there {
				continue
			}
			if accepted, ok := take(value, fields.Field(i), field.Tag.Get("max")); !ok {
				return Bounds{}, fmt.Errorf("config.%s must be %s, not %s", key, accepted, shown(value))
			}
		}
	}
	return bounds, unknown(values, known)
}

// take reads a value into a field, or says what the field accepts.
func take(value json.RawMessage, field reflect.Value, most string) (accepted string, ok bool) {
	switch field.Kind() {
	case reflect.String:
		var text string
		ok = json.Unmarshal(value, &text) == nil && !isNull(value) && strings.TrimSpace(text) != ""
		field.SetString(strings.TrimSpace(text))
		return "a text that is not empty", ok
	case reflect.Bool:
		var flag bool
		ok = json.Unmarshal(value, &flag) == nil && !isNull(value)
		field.SetBool(flag)
		return "true or false", ok
	case reflect.Float64:
		number, err := strconv.ParseFloat(string(value), 64)
		field.SetFloat(number)
		return "a number above 0", err == nil && number > 0 && !math.IsInf(number, 0)
	case reflect.Uint32, reflect.Int:
		limit, accepted := uint64(math.MaxUint32), "a whole number, 1 or more"
		if most != "" {
			limit, _ = strconv.ParseUint(most, 10, 32)
			accepted = "a whole number from 1 to " + most
		}
		// 3.0 is a whole number, as in JSON Schema.
		number, err := strconv.ParseFloat(string(value), 64)
		if ok = err == nil && number == math.Trunc(number) && number >= 1 && number <= float64(limit); ok {
			field.Set(reflect.ValueOf(uint64(number)).Convert(field.Type()))
		}
		return accepted, ok
	default:
		err := json.Unmarshal(value, field.Addr().Interface())
		return "what its type says: " + field.Type().String(), err == nil
	}
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

func unknown(values map[string]json.RawMessage, known []string) error {
	if len(values) == 0 {
		return nil
	}
	var names []string
	for name := range values {
		names = append(names, strconv.Quote(name))
	}
	slices.Sort(names)
	keys := "keys"
	if len(names) == 1 {
		keys = "key"
	}
	return fmt.Errorf("config has the unknown %s %s; known are %s", keys, strings.Join(names, ", "), strings.Join(known, ", "))
}

// shown is a value for an error text: at most 80 characters of its JSON.
func shown(value json.RawMessage) string {
	var compact bytes.Buffer
	if json.Compact(&compact, value) != nil {
		return string(value)
	}
	characters := []rune(compact.String())
	if len(characters) > 80 {
		return string(characters[:80]) + "…"
	}
	return string(characters)
}
