"""Two copies of the library in one process: the second is refused, the first works on.

Arguments: the copy.
"""

import sys

from support.library import Library, StatusError
from support.signatures import EUNSUPPORTED

first, second = Library(), Library(sys.argv[1])
first.start()
try:
    second.start()
except StatusError as error:
    assert error.status == EUNSUPPORTED, error
    assert "another copy" in str(error)
else:
    raise AssertionError("the second copy took over")
assert first.info()["interpreter"] == "joined"
first.stop()
