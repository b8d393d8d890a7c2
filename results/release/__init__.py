"""What leaves a store and what comes into one: releases with their documents, exports and merges."""
