// Rows of a factorization by conjugate gradients on tables rotated to a diagonal Gramian, fused with the gather.
//
// As solvers.conjugate_gradients, row by row: a link's vector is read where it lies in the table, and its product with
// x and what that adds to the residual are taken in one go; for all later looks a row's vectors are in the cache.
// Compiled for one length DIM of vectors by fused.py.

#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr int kAhead = 8;  // links whose vectors are fetched before they are needed

struct Vector {
  float at[DIM];
};

inline float dot(const float* a, const float* b) {
  float sum = 0;
  for (int i = 0; i < DIM; ++i) sum += a[i] * b[i];
  return sum;
}

inline void add(float* to, float times, const float* what) {
  for (int i = 0; i < DIM; ++i) to[i] += times * what[i];
}

inline void fetch(const float* vector) {
  for (int i = 0; i < DIM; i += 16) __builtin_prefetch(vector + i);
}

// Solves one row of `count` links in place.
void solve(const float* table, const int32_t* links, int count, const float* shared, float ridge, int steps, float* x) {
  Vector residual = {}, direction, image, smooth;
  for (int i = 0; i < DIM; ++i) smooth.at[i] = shared[i] + ridge;
  for (int j = 0; j < count; ++j) {
    if (j + kAhead < count) fetch(table + int64_t{links[j + kAhead]} * DIM);
    const float* vector = table + int64_t{links[j]} * DIM;
    add(residual.at, 1 - dot(vector, x), vector);
  }
  float size = 0;
  for (int i = 0; i < DIM; ++i) {
    residual.at[i] -= smooth.at[i] * x[i];
    direction.at[i] = residual.at[i] / smooth.at[i];
    size += residual.at[i] * direction.at[i];
  }
  for (int step = 1; step < steps; ++step) {
    image = {};
    for (int j = 0; j < count; ++j) {
      const float* vector = table + int64_t{links[j]} * DIM;
      add(image.at, dot(vector, direction.at), vector);
    }
    for (int i = 0; i < DIM; ++i) image.at[i] += smooth.at[i] * direction.at[i];
    const float curvature = dot(direction.at, image.at);
    const float length = curvature > 0 ? size / curvature : 0;
    const float last = size;
    size = 0;
    for (int i = 0; i < DIM; ++i) {
      x[i] += length * direction.at[i];
      residual.at[i] -= length * image.at[i];
      size += residual.at[i] * residual.at[i] / smooth.at[i];
    }
    const float turn = last > 0 ? size / last : 0;
    for (int i = 0; i < DIM; ++i) direction.at[i] = residual.at[i] / smooth.at[i] + turn * direction.at[i];
  }
  // The last step needs no new residual, so its links are only multiplied.
  float curvature = 0;
  for (int i = 0; i < DIM; ++i) curvature += smooth.at[i] * direction.at[i] * direction.at[i];
  for (int j = 0; j < count; ++j) {
    const float along = dot(table + int64_t{links[j]} * DIM, direction.at);
    curvature += along * along;
  }
  add(x, curvature > 0 ? size / curvature : 0, direction.at);
}

// table [slots, DIM], links [rows, length], counts [rows], shared [DIM], ridge [rows], start [rows, DIM]
ffi::Error Rows(ffi::Buffer<ffi::F32> table, ffi::Buffer<ffi::S32> links, ffi::Buffer<ffi::F32> counts,
                ffi::Buffer<ffi::F32> shared, ffi::Buffer<ffi::F32> ridge, ffi::Buffer<ffi::F32> start,
                ffi::ResultBuffer<ffi::F32> solved, int64_t steps) {
  const int64_t rows = links.dimensions().front(), length = links.dimensions().back();
  for (int64_t row = 0; row < rows; ++row) {
    float* x = solved->typed_data() + row * DIM;
    for (int i = 0; i < DIM; ++i) x[i] = start.typed_data()[row * DIM + i];
    solve(table.typed_data(), links.typed_data() + row * length, static_cast<int>(counts.typed_data()[row]),
          shared.typed_data(), ridge.typed_data()[row], static_cast<int>(steps), x);
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(scaling_limits_fused_rows, Rows,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<int64_t>("steps"));
