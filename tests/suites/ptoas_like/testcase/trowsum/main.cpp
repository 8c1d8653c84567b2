#include "driver.h"

void LaunchTROWSUM(float* dst, const float* src, int n);

struct TestCase {
  const char* name;
  int rows, columns, valid_rows, valid_columns;
};

static const TestCase kCases[] = {
    {"f32_16x64", 16, 64, 16, 64},
    {"f32_8x128_valid_8x100", 8, 128, 8, 100},
};

int main(int argc, char** argv) {
  return RunCases(argc, argv, kCases, [](const TestCase& tc) {
    const std::string folder = std::string("./") + tc.name;
    std::vector<float> src(tc.rows * tc.columns), dst(tc.rows);
    if (!ReadFile(folder + "/input.bin", src.data(), src.size() * sizeof(float))) return false;
    for (int row = 0; row < tc.valid_rows; ++row) {
      LaunchTROWSUM(&dst[row], &src[row * tc.columns], tc.valid_columns);
    }
    return WriteFile(folder + "/output.bin", dst.data(), dst.size() * sizeof(float));
  });
}
