// A small machine with a vector unit of eight lanes: it moves tiles from and to files, and counts cycles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sim {

constexpr int kLanes = 8;

class Machine {
 public:
  explicit Machine(std::string folder) : folder_(std::move(folder)) {}

  // A whole file; ends the program where it has another size.
  template <typename T>
  std::vector<T> load(const char* name, size_t count) {
    std::vector<T> data(count);
    read(name, data.data(), count * sizeof(T));
    spend(count / kLanes + 20);
    return data;
  }

  template <typename T>
  void store(const char* name, const std::vector<T>& data) {
    write(name, data.data(), data.size() * sizeof(T));
    spend(data.size() / kLanes + 20);
  }

  // Whatever the vector unit does for all of its lanes at once takes a cycle.
  void spend(uint64_t cycles) { cycles_ += cycles; }
  uint64_t cycles() const { return cycles_; }
  const std::string& folder() const { return folder_; }

 private:
  void read(const char* name, void* data, size_t bytes);
  void write(const char* name, const void* data, size_t bytes);

  std::string folder_;
  uint64_t cycles_ = 0;
};

// Says what is wrong, and ends the program.
[[noreturn]] void fail(const std::string& what);

}  // namespace sim
