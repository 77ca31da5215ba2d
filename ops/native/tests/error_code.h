// The error code of a call, for CHECK(error_code([] { ... }) == Code::kDataLoss).
#pragma once

#include "core/base/status.h"

namespace hotrow {

// The code of the Error that `call` throws; kOk if it throws nothing.
template <typename Call>
Code error_code(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kOk;
}

}  // namespace hotrow
