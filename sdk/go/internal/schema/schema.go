// Package schema makes JSON Schemas of Go's types, and reads values by them.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

// Read reads a value. Keys that its type does not have are errors.
func Read(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("the input has more than one value")
	}
	return nil
}
