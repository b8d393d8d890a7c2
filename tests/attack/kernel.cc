// The fused kernel without XLA: reads arrays from standard input, each into memory of exactly its size, and solves.
//
// Compiled with the sanitizers of the compiler, which end it with a report at the first byte that is not its own.

#include <cstdio>
#include <memory>
#include <vector>

#include "fused.cc"

namespace {

// An array that XLA would own; what lies beside it belongs to nobody.
struct Array {
  std::vector<int64_t> dims;
  XLA_FFI_DataType dtype;
  std::unique_ptr<uint32_t[]> data;
  XLA_FFI_Buffer buffer;

  Array(std::vector<int64_t> shape, XLA_FFI_DataType type) : dims(std::move(shape)), dtype(type) {
    data.reset(new uint32_t[size()]);
    buffer = {XLA_FFI_Buffer_STRUCT_SIZE, nullptr, dtype, data.get(), static_cast<int64_t>(dims.size()), dims.data()};
  }
  size_t size() const {
    size_t product = 1;
    for (int64_t dim : dims) product *= dim;
    return product;
  }
  Array& filled() {
    if (std::fread(data.get(), 4, size(), stdin) != size()) std::abort();
    return *this;
  }
};

}  // namespace

int main() {
  int64_t sizes[4];  // slots, rows, links of a row, steps
  if (std::fread(sizes, 8, 4, stdin) != 4) return 2;
  const auto [slots, rows, length, steps] = sizes;
  Array table({slots, DIM}, XLA_FFI_DataType_F32), links({rows, length}, XLA_FFI_DataType_S32);
  Array counts({rows}, XLA_FFI_DataType_F32), shared({DIM}, XLA_FFI_DataType_F32);
  Array ridge({rows}, XLA_FFI_DataType_F32), start({rows, DIM}, XLA_FFI_DataType_F32);
  for (Array* array : {&table, &links, &counts, &shared, &ridge, &start}) array->filled();
  Array solved({rows, DIM}, XLA_FFI_DataType_F32);
  ffi::Buffer<ffi::F32> out(&solved.buffer);
  Rows(ffi::Buffer<ffi::F32>(&table.buffer), ffi::Buffer<ffi::S32>(&links.buffer),
       ffi::Buffer<ffi::F32>(&counts.buffer), ffi::Buffer<ffi::F32>(&shared.buffer),
       ffi::Buffer<ffi::F32>(&ridge.buffer), ffi::Buffer<ffi::F32>(&start.buffer),
       ffi::ResultBuffer<ffi::F32>(out), steps);
  std::fwrite(solved.data.get(), 4, solved.size(), stdout);
}
