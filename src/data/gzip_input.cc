// gzip, member after member, by zlib's inflate; its own checksums and lengths are held against what
// comes out.
#include <fmt/format.h>
#include <zlib.h>

#include <vector>

#include "data/byte_input.h"

namespace loom::data {
namespace {

constexpr std::size_t kPackedBytes = 64 << 10;
constexpr int kGzipWindow = 15 + 16;  // the largest window; 16 asks for gzip's header and checksum

class GzipInput final : public ByteInput {
 public:
  explicit GzipInput(std::unique_ptr<ByteInput> packed)
      : packed_(std::move(packed)), buffer_(kPackedBytes) {}
  ~GzipInput() override {
    if (begun_) ::inflateEnd(&stream_);
  }
  GzipInput(const GzipInput&) = delete;
  GzipInput& operator=(const GzipInput&) = delete;

  Result<std::size_t> Read(MutableByteView out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1U << 30));
    const std::size_t wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0) LOOM_RETURN_IF_ERROR(Refill());
      if (stream_.avail_in == 0) {
        if (!inside_ && members_ > 0) return std::size_t{0};
        return Bad("it ends in the middle");
      }
      if (!inside_) LOOM_RETURN_IF_ERROR(Begin());
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        inside_ = false;
        ++members_;
      } else if (result == Z_MEM_ERROR) {
        return MakeError(Code::kLimit, "gzip: no memory");
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Bad(stream_.msg == nullptr ? "not gzip" : stream_.msg);
      }
    }
    return wanted - stream_.avail_out;
  }
  std::uint64_t taken() const override { return packed_->taken(); }

 private:
  static Error Bad(std::string_view what) {
    return MakeError(Code::kCorrupt, fmt::format("bad gzip data: {}", what),
                     "unpack it with gzip -t to see where it breaks, or copy it again");
  }

  Status Refill() {
    LOOM_ASSIGN(const std::size_t n, packed_->Read(buffer_));
    stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_in = static_cast<uInt>(n);
    return {};
  }

  Status Begin() {
    const int result =
        begun_ ? ::inflateReset2(&stream_, kGzipWindow) : ::inflateInit2(&stream_, kGzipWindow);
    if (result != Z_OK) return MakeError(Code::kLimit, "gzip: no memory");
    begun_ = true;
    inside_ = true;
    return {};
  }

  std::unique_ptr<ByteInput> packed_;
  Bytes buffer_;
  z_stream stream_{};
  bool begun_ = false;   ///< inflateInit2 succeeded
  bool inside_ = false;  ///< of a member
  std::uint64_t members_ = 0;
};

}  // namespace

std::unique_ptr<ByteInput> UnpackGzip(std::unique_ptr<ByteInput> packed) {
  return std::make_unique<GzipInput>(std::move(packed));
}

}  // namespace loom::data
