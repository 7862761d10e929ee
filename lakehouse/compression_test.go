package lakehouse

import (
	"testing"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

func TestCompressionPropertyNamesTheParquetCodec(t *testing.T) {
	want := map[string]compress.Compression{
		"": compress.Codecs.Zstd, "zstd": compress.Codecs.Zstd, "snappy": compress.Codecs.Snappy,
		"gzip": compress.Codecs.Gzip, "none": compress.Codecs.Uncompressed,
	}
	for name, codec := range want {
		d := TableDef{Properties: map[string]string{PropCompression: name}}
		if got, err := d.compression(); err != nil || got != codec {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	d := TableDef{Properties: map[string]string{PropCompression: "lzo"}}
	if err := d.CheckProperties(); err == nil {
		t.Error("an unknown codec is taken")
	}
}
