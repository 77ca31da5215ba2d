// The stored form of a row's weights (docs/formats.md, "Stored rows"). D weights, B bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

enum class StoredType : int { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2, kInt8 = 3 };

// "float32", ...; fails with InvalidArgument for another name.
StoredType stored_type_of(const char* name);
const char* name_of(StoredType type);

// B for rows of width D.
size_t row_bytes(StoredType type, size_t width);

// weights: (width). row: (B), any alignment. NaN and infinity are kept; int8 cannot hold them and
// fails with InvalidArgument.
void encode_row(StoredType type, const float* weights, size_t width, std::byte* row);
void decode_row(StoredType type, const std::byte* row, size_t width, float* weights);

}  // namespace hotrow
