"""Memory of the host that a GPU reads and writes (pinned). It goes back to the system with the last tensor in it; torch's own allocator
keeps what it has pinned until the process ends."""
import mmap

import torch


class _Pinned(mmap.mmap):
    address = 0  # set while it is pinned

    def __del__(self):
        if self.address:
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaHostUnregister(self.address)


def pinned(size: int) -> torch.Tensor:
    """Bytes, zeroed."""
    memory = _Pinned(-1, max(size, 1))
    tensor = torch.frombuffer(memory, dtype=torch.uint8)
    torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.numel(), 0)))
    memory.address = tensor.data_ptr()
    return tensor
