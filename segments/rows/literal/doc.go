// Package literal converts single column values between their text form in
// the rows API and their Arrow values: decimals, dates, times, timestamps and
// UUIDs. It owns the grammar of these forms, so that rows in, rows out and the
// literals of a filter cannot drift apart.
//
// Everything is exact: a text that does not denote a value of the type, or
// denotes one between two values, is an error and never rounded. The errors
// are constant values whose text is a reason for a person, without the input.
//
// Forms (a round trip through Append and Parse gives the same value):
//
//	date         YYYY-MM-DD; years outside 0000 to 9999 carry a sign: +12345-01-01, -0001-12-31
//	time         HH:MM:SS with up to nine fraction digits, those beyond the sixth zero
//	timestamp    date, 'T' or a space, time; no zone
//	timestamptz  the same followed by Z or an offset (RFC 3339)
//	uuid         8-4-4-4-12 hexadecimal digits
//	decimal      JSON number grammar, with an optional leading '+', and bare ".5" and "5."
//
// The package holds no state and is safe for concurrent use.
package literal
