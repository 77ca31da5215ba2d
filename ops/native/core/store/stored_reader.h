// A reader behind the C ABI.
#pragma once

#include <memory>

#include "core/store/row_reader.h"

struct hr_reader {
  std::shared_ptr<const hotrow::RowReader> reader;
};
