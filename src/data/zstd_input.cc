// zstd, frame after frame, by libzstd's streaming decoder, which checks a frame's checksum where it
// has one and refuses windows above the limit before it allocates them.
#include <fmt/format.h>
#include <zstd.h>

#include "data/byte_input.h"

namespace loom::data {
namespace {

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

class ZstdInput final : public ByteInput {
 public:
  ZstdInput(std::unique_ptr<ByteInput> packed, int max_window_log)
      : packed_(std::move(packed)), buffer_(ZSTD_DStreamInSize()), stream_(ZSTD_createDStream()) {
    if (stream_ != nullptr) {
      ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, max_window_log);
    }
  }

  Result<std::size_t> Read(MutableByteView out) override {
    if (stream_ == nullptr) return MakeError(Code::kLimit, "zstd: no memory");
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0) {
      if (in_.pos == in_.size && !full_) {
        LOOM_ASSIGN(const std::size_t n, packed_->Read(buffer_));
        in_ = {buffer_.data(), n, 0};
        if (n == 0) {
          if (frames_ > 0 && !inside_) return std::size_t{0};
          return Bad("it ends in the middle");
        }
      }
      const std::size_t left = ZSTD_decompressStream(stream_.get(), &to, &in_);
      if (ZSTD_isError(left) != 0) return Bad(ZSTD_getErrorName(left));
      inside_ = left != 0;
      if (!inside_) ++frames_;
      full_ = inside_ && to.pos == to.size;  // it may hold more than there was room for
    }
    return to.pos;
  }
  std::uint64_t taken() const override { return packed_->taken(); }

 private:
  static Error Bad(std::string_view what) {
    return MakeError(Code::kCorrupt, fmt::format("bad zstd data: {}", what),
                     "unpack it with zstd -t to see where it breaks, or copy it again");
  }

  std::unique_ptr<ByteInput> packed_;
  Bytes buffer_;
  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;  ///< of a frame
  bool full_ = false;
  std::uint64_t frames_ = 0;
};

}  // namespace

std::unique_ptr<ByteInput> UnpackZstd(std::unique_ptr<ByteInput> packed, int max_window_log) {
  return std::make_unique<ZstdInput>(std::move(packed), max_window_log);
}

}  // namespace loom::data
