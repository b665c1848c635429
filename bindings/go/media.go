package cowmlx

import (
	"fmt"
	"unsafe"
)

// A Media is an image: a value, which nothing changes.
type Media struct{ object }

// MediaFromPixels makes an image of pixels, row by row: 1 (grey), 3 (RGB) or 4 (RGBA) bytes each.
// They are copied.
func MediaFromPixels(pixels []byte, width, height, channels int) (*Media, error) {
	given := []int{width, height, channels}
	for at, name := range []string{"width", "height", "channels"} {
		if given[at] != int(int32(given[at])) {
			said := fmt.Sprintf("%s is %d, must be a number of 32 bits", name, given[at])
			return nil, refused(StatusEInval, "out_of_range", name, said)
		}
	}
	if fits := width > 0 && height > 0 && channels > 0; fits {
		if row := width * channels; row/channels != width || len(pixels)/height < row {
			said := fmt.Sprintf("pixels has %d bytes, too few for %d x %d x %d", len(pixels), width, height, channels)
			return nil, refused(StatusEInval, "shape_mismatch", "pixels", said)
		}
	}
	return newMediaOf(pixels, func(data unsafe.Pointer, out *int32) int32 {
		return api.mediaFromPixels(data, int32(width), int32(height), int32(channels), uintptr(width*channels), out)
	})
}

// MediaFromFile makes an image of a file: PNG, JPEG, WebP, BMP or GIF.
func MediaFromFile(bytes []byte) (*Media, error) {
	return newMediaOf(bytes, func(data unsafe.Pointer, out *int32) int32 {
		return api.mediaFromFile(data, uintptr(len(bytes)), out)
	})
}

func newMediaOf(bytes []byte, made func(unsafe.Pointer, *int32) int32) (*Media, error) {
	l, handle := &lowering{}, int32(0)
	if err := l.call(func() int32 { return made(pointer(bytes), &handle) }); err != nil {
		return nil, err
	}
	return newMedia(handle), nil
}
