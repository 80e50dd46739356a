# SPDX-License-Identifier: Apache-2.0
"""A program whose lines ask for known amounts of memory, for lines_bars.py: python lines_job.py. A comment "asks PART MIB" at the
end of a line says what it asks PyTorch for, all of which is kept, so that each is a request to the driver. "backward MIB" says
what the backward pass makes for it, as counted with PyTorch 2.11 and 2.15 on the CPU."""
import torch

ROWS, WIDTH = 4096, 8192  # 128 MiB in fp32


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.full((WIDTH, WIDTH), 1e-3, device="cuda"))  # asks setup 256
        self.second = torch.nn.Parameter(torch.full((2 * WIDTH, WIDTH), 1e-3, device="cuda"))  # asks setup 512

    def forward(self, x):
        a = x @ self.first  # asks forward 128, backward 256
        b = torch.relu(a)  # asks forward 128, backward 128
        c = b * 2  # asks forward 128, backward 256
        d = torch.cat([b, c], 1)  # asks forward 256
        e = d @ self.second  # asks forward 128, backward 768
        f = torch.softmax(e, -1)  # asks forward 128, backward 128
        return f, [a, b, c, d, e]


def loss_of(f):
    squares = f.square()  # asks forward 128, backward 384
    return squares.mean(), squares  # backward 128


net = Net()
x = torch.ones(ROWS, WIDTH, device="cuda")  # asks setup 128
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
out, kept = net(x)
loss, squares = loss_of(out)
loss.backward()  # in a thread of its own, which is at no line of Python
optimizer.step()  # asks optimizer 1536
torch.cuda.synchronize()
print("done")
