import os
import sys

import alpha

print("checking alpha", alpha.version)
sys.exit(int(os.environ.get("CHECK_STATUS", "0")))
