// Package schema makes JSON Schemas of Go's types, and reads values by them.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Of is the schema of a value of this type. Tags of a field: `json` names it, and `omitempty` there makes it optional;
// `doc` describes it; `enum` lists what a string may be, with commas; `min` and `max` bound a number, or the length of
// a string or a list.
func Of(typ reflect.Type) map[string]any {
	switch typ.Kind() {
	case reflect.Pointer:
		return Of(typ.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": Of(typ.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": Of(typ.Elem())}
	case reflect.Struct:
		return ofStruct(typ)
	default:
		return map[string]any{}
	}
}

func ofStruct(typ reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		property := Of(field.Type)
		if doc := field.Tag.Get("doc"); doc != "" {
			property["description"] = doc
		}
		if enum := field.Tag.Get("enum"); enum != "" {
			property["enum"] = strings.Split(enum, ",")
		}
		bound(property, "min", field.Tag)
		bound(property, "max", field.Tag)
		properties[name] = property
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			required = append(required, name)
		}
	}
	return map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	}
}

func bound(property map[string]any, tag string, tags reflect.StructTag) {
	value, err := strconv.ParseFloat(tags.Get(tag), 64)
	if err != nil {
		return
	}
	keyword := map[any]string{"string": tag + "Length", "array": tag + "Items"}[property["type"]]
	if keyword == "" {
		keyword = tag + "imum"
	}
	property[keyword] = value
}

// Read reads a value. Keys that its type does not have are errors. 3.0 is an integer too, as in JSON Schema, although a
// field of an integer takes no such number.
func Read(text []byte, into any) error {
	err := read(text, into)
	if mismatch := new(json.UnmarshalTypeError); errors.As(err, &mismatch) && strings.HasPrefix(mismatch.Value, "number") {
		if written, ok := withIntegers(text); ok {
			reflect.ValueOf(into).Elem().SetZero()
			err = read(written, into)
		}
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// withIntegers is a JSON document whose numbers without a fraction are written as integers.
func withIntegers(text []byte) ([]byte, bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	written, err := json.Marshal(integers(value))
	return written, err == nil
}

func integers(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = integers(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = integers(value[key])
		}
	case json.Number:
		// Larger numbers are not exact.
		number, err := value.Float64()
		if err == nil && strings.ContainsAny(value.String(), ".eE") && number == math.Trunc(number) && math.Abs(number) <= 1<<53 {
			return int64(number)
		}
	}
	return value
}

func read(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("the input has more than one value")
	}
	return nil
}
