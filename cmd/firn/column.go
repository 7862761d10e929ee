package main

import (
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/jsonwire"
)

// parseColumn reads "name type [required|optional] [default VALUE] [doc TEXT]
// [aggregate NAME] [auto_increment]".
func parseColumn(text string) (*firnv1.Column, error) {
	words, err := splitWords(text)
	if err != nil {
		return nil, usagef("column %q: %v", text, err)
	}
	if len(words) < 2 {
		return nil, usagef("column %q: it must look like 'NAME TYPE [required] [default VALUE] [doc TEXT]'", text)
	}
	col := &firnv1.Column{Name: unquote(words[0]), Type: words[1]}
	for rest := words[2:]; len(rest) > 0; {
		n, err := columnOption(col, rest)
		if err != nil {
			return nil, usagef("column %q: %v", text, err)
		}
		rest = rest[n:]
	}
	return col, nil
}

// columnOption reads one option and returns how many words it took.
func columnOption(col *firnv1.Column, words []string) (int, error) {
	option := strings.ToLower(words[0])
	switch option {
	case "required":
		col.Required = true
		return 1, nil
	case "optional":
		return 1, nil
	case "not": // SQL's NOT NULL
		if len(words) > 1 && strings.EqualFold(words[1], "null") {
			col.Required = true
			return 2, nil
		}
	case "auto_increment":
		col.AutoIncrement = true
		return 1, nil
	case "default", "doc", "aggregate":
		if len(words) < 2 {
			return 0, usagef("%s needs a value", option)
		}
		switch option {
		case "default":
			v, err := parseDefault(words[1])
			if err != nil {
				return 0, err
			}
			col.Default = v
		case "doc":
			col.Doc = unquote(words[1])
		case "aggregate":
			col.Aggregate = unquote(words[1])
		}
		return 2, nil
	}
	return 0, usagef("%q is none of required, default VALUE, doc TEXT, aggregate NAME, auto_increment", words[0])
}

// parseDefault reads a JSON value; a word that is none, and anything in single
// quotes, is text.
func parseDefault(word string) (*structpb.Value, error) {
	if strings.HasPrefix(word, "'") {
		return structpb.NewStringValue(unquote(word)), nil
	}
	v := new(structpb.Value)
	if err := jsonwire.Unmarshal([]byte(word), v); err == nil && v.GetKind() != nil {
		return v, nil
	}
	if strings.HasPrefix(word, `"`) || strings.HasPrefix(word, "{") || strings.HasPrefix(word, "[") {
		return nil, usagef("default %s is not JSON", word)
	}
	return structpb.NewStringValue(word), nil
}

// splitWords cuts at spaces that stand in no quotes and no brackets, so that a
// type such as "struct<a: long, b: decimal(10, 2)>" is one word.
func splitWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	depth, quote := 0, rune(0)
	flush := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for _, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case strings.ContainsRune("(<[{", r):
			depth++
		case strings.ContainsRune(")>]}", r):
			depth--
		case depth == 0 && (r == ' ' || r == '\t' || r == '\n'):
			flush()
			continue
		}
		word.WriteRune(r)
	}
	flush()
	if depth != 0 || quote != 0 {
		return nil, usagef("a bracket or quote is not closed")
	}
	return words, nil
}

// unquote takes off one pair of quotes.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
