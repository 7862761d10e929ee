// Package filter parses the SQL predicates of the read API's `where`, and
// evaluates them on Arrow batches and on column statistics.
//
// It owns the predicate language (docs/api.md) and its meaning; it refuses
// anything else of SQL by name. [Parse] gives an [Expr]; Apply, Mask and Rows
// evaluate it on a batch, Prune on statistics. The tree under [Expr.Root] is
// exported so that other packages can translate it.
//
// # Language
//
//	=, <>, !=, <, <=, >, >=   column with literal, either side, or two columns of one kind
//	[NOT] IN (…), [NOT] BETWEEN … AND …, [NOT] LIKE '…' [ESCAPE '…'], IS [NOT] NULL
//	IS [NOT] TRUE|FALSE, and the bare name, of boolean columns
//	AND, OR, NOT, parentheses, TRUE, FALSE, NULL
//
// Names are case-sensitive and may be quoted "so" or `so`; a dot reaches into a
// struct. Literals take the type of the column: numbers are exact for integers
// and decimals, texts become dates, times, timestamps and uuids; DATE '…',
// TIME '…', TIMESTAMP '…', x'…' are understood. A timestamptz text without a
// zone is UTC; a text without a time of day is midnight.
//
// # Meaning
//
// Comparisons with NULL are unknown, and AND, OR, NOT follow SQL's three-valued
// logic; a row is kept when the predicate is true. Floating-point comparison is
// IEEE 754's, as in Iceberg's metrics: NaN is not less than, equal to or
// greater than anything, so NaN <> 1 and NOT (NaN < 1) are true; x = 'NaN'
// finds the NaNs. Strings compare by their UTF-8 bytes and LIKE is
// case-sensitive; `\` escapes in LIKE unless ESCAPE says otherwise, and is an
// ordinary character everywhere else.
//
// # Invariants
//
//   - Prune never answers None when a row could match, nor All when one could fail to.
//   - Text and nesting are bounded: 64 KiB, 10,000 list values, 100 levels.
//
// The SQL grammar is vitess's, used nowhere else. Names and texts never reach
// it: a tokenizer in front replaces them by numbers, so that double quotes mean
// names as in the SQL standard, and positions are those of the caller's text.
//
// An Expr is immutable and safe for concurrent use.
package filter
