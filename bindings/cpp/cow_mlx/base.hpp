/* What all headers share: versions, errors, handles. See cow_mlx.hpp. */
#ifndef COW_MLX_BASE_HPP
#define COW_MLX_BASE_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cow_mlx.h"
#include "names.hpp"

namespace cowmlx {

/** The library's version, such as "1.0.0"; COW_MLX_VERSION is that of the header. */
inline const char* version() noexcept { return cow_mlx_version(); }

/** The library's COW_MLX_ABI_VERSION. */
inline std::uint32_t abi_version() noexcept { return cow_mlx_abi_version(); }

/** The name of a status, such as "EINVAL". */
inline const char* status_name(cow_mlx_status status) noexcept {
  return cow_mlx_status_name(status);
}

namespace detail {

/* A message that begins with a call of the library: with the name that the call has here. */
inline std::string with_own_name(const std::string& message) {
  const std::string call = message.substr(0, message.find(": "));
  for (const auto& [name, own] : call_names) {
    if (call == name) return own + message.substr(call.size());
  }
  return message;
}

}  // namespace detail

/** A call that failed: what() is cow_mlx_error_message(), with the name that the call has here. */
class Error : public std::runtime_error {
 public:
  Error(cow_mlx_status status, const std::string& message, const std::string& reason = "",
        const std::string& details = "{}")
      : std::runtime_error(detail::with_own_name(message)),
        status_(status),
        reason_(reason),
        details_(details) {}

  /** The status, such as COW_MLX_EINVAL. */
  cow_mlx_status status() const noexcept { return status_; }

  /** Its name, such as "EINVAL". */
  const char* name() const noexcept { return status_name(status_); }

  /** Why: a name of COW_MLX_REASONS, such as "out_of_range". */
  const char* reason() const noexcept { return reason_.what(); }

  /** What is known of it: the "details" of cow_mlx_error_details(), a JSON object. */
  const char* details() const noexcept { return details_.what(); }

 private:
  cow_mlx_status status_;
  /* Texts whose copy does not throw, as that of an exception must not. */
  std::runtime_error reason_, details_;
};

/** A call that was cancelled: by Context::cancel(), a callback, or the end of the runtime. */
class Canceled : public Error {
 public:
  using Error::Error;
};

namespace detail {

/* The thread's failure, from cow_mlx_error_details(). */
inline std::string failure() {
  std::size_t length = 0;
  cow_mlx_error_details(nullptr, 0, &length);
  std::string text(length, '\0');
  cow_mlx_error_details(&text[0], length, &length);
  return text;
}

/* The text between a mark and an end that is looked for from the front or from the back. */
inline std::string cut(const std::string& text, const std::string& mark, std::size_t end) {
  std::size_t begin = text.find(mark);
  if (begin == std::string::npos || end < begin + mark.size()) return "";
  return text.substr(begin + mark.size(), end - begin - mark.size());
}

inline void check(cow_mlx_status status) {
  if (status >= 0) return;
  const std::string message = cow_mlx_error_message(), all = failure();
  const std::string reason = cut(all, "\"reason\": \"", all.find("\", \"details\""));
  const std::string details = cut(all, "\"details\": ", all.size() - 1);
  if (status == COW_MLX_ECANCELED) throw Canceled(status, message, reason, details);
  if (reason == "unknown_handle" && details.find("\"handle\": 0,") != std::string::npos) {
    const std::string call = message.substr(0, message.find(": "));
    throw Error(status, call + ": the object has been moved from", reason, details);
  }
  throw Error(status, message, reason, details);
}

/* For calls that cancel, which set no message. */
inline void check_cancel(cow_mlx_status status, const std::string& noun) {
  if (status >= 0) return;
  throw Error(status, noun + "_cancel: no such " + noun + " is open", "unknown_handle");
}

/* A text for a parameter that ends at its first NUL byte. */
inline const char* c_string(const std::string& text, const char* name) {
  if (text.find('\0') != std::string::npos) {
    throw Error(COW_MLX_EINVAL, std::string(name) + " has a NUL byte in it", "out_of_range");
  }
  return text.c_str();
}

/* The same, where an empty text stands for none. */
inline const char* optional(const std::string& text, const char* name) {
  return text.empty() ? nullptr : c_string(text, name);
}

/* The texts of params in C's form, for as long as a call runs. */
class Texts {
 public:
  const char* optional(const std::string& text, const char* call, const char* name) const {
    return text.empty() ? nullptr : c_string(text, (std::string(call) + ": " + name).c_str());
  }

  /* Never NULL. */
  const char* const* list(const std::vector<std::string>& texts, const char* call,
                          const char* name) {
    const std::string named = std::string(call) + ": " + name;
    std::vector<const char*>& list = lists_.emplace_back();
    for (const std::string& text : texts) list.push_back(c_string(text, named.c_str()));
    list.push_back(nullptr);
    return list.data();
  }

 private:
  std::deque<std::vector<const char*>> lists_;
};

/* The handle of an object that must be there, and must not have been moved from. */
template <typename Object>
auto open(const Object* object, const char* name) {
  if (object == nullptr || object->handle() == 0) {
    const char* state = object == nullptr ? " is nullptr" : " has been moved from";
    const std::string details = std::string("{\"argument\": \"") + name + "\"}";
    throw Error(COW_MLX_EINVAL, std::string(name) + state + ", must be an open object",
                "null_argument", details);
  }
  return object->handle();
}

/* Make a call that fills (buffer, capacity, *length), again if the first size was too small. */
template <typename Buffer, typename Call>
Buffer fill(std::size_t size, Call call) {
  Buffer buffer(std::max<std::size_t>(size, 1), typename Buffer::value_type());
  for (;;) {
    std::size_t length = 0;
    cow_mlx_status status = call(buffer.data(), buffer.size(), &length);
    if (status != COW_MLX_EBUFFER) check(status);
    buffer.resize(length);
    if (status != COW_MLX_EBUFFER) return buffer;
  }
}

/* A handle that is freed with its owner. */
template <auto Free>
class Handle {
  template <typename T>
  static T argument(cow_mlx_status (*)(T));
  using Value = decltype(argument(Free));

 public:
  explicit Handle(Value value = 0) noexcept : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, 0)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      release();
      value_ = std::exchange(other.value_, 0);
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { release(); }

  Value get() const noexcept { return value_; }

  /* Ownership passes to the caller. */
  Value give_up() noexcept { return std::exchange(value_, 0); }

 private:
  /* It fails where the runtime was stopped before, and nothing is left to free. */
  void release() noexcept {
    if (value_ != 0) Free(value_);
  }

  Value value_;
};
}  // namespace detail

}  // namespace cowmlx

#endif /* COW_MLX_BASE_HPP */
